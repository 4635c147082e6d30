// Delays of a plan, applied to the ops that the engine issues. The wrappers make one `delayed` per op; test devices
// take what their queue has to wait for with the command. formats/DELAYS.md says what a plan means in an engine.
#pragma once
#include "delay_match.h"
#include "objects.hpp"
#include "record.h"

namespace td {

constexpr uint32_t DELAY_FILLER = 16;   // K_DELAY: added to the place where a filler did it

// Kinds of the tape, as plans name them.
enum op_kind : uint8_t { OP_COMPUTE, OP_COPY, OP_MEMSET, OP_RECORD, OP_WAIT, OP_SYNC, OP_ALLOC, OP_FREE, OP_DESTROY, OP_MARK, OP_KINDS };

// Reads the plan that TAPEDELAY_DELAYS names; called once, after the spool was opened and before anything is wrapped.
// A plan that cannot be used: said once, noted in the spool, no delays.
void delays_start();
void delays_stop();

// A backend was wrapped: how a recording will name its queue and its device. With the slow path's lock held.
void delays_queue(uint16_t id, bool async, const char * name, ggml_backend_dev_t device);
// Whether lines ask for the tensors that a computation touches.
bool delays_want_sets();
// Whether the plan may hold up this queue on its device (before_start or after_end).
bool delays_aim_at(uint16_t queue);

// Counts an op and finds what applies to it. `queue`: null for the calling thread.
void delays_find(op_kind kind, const queue_info * queue, uint32_t name, uint32_t set, delay_match & out);

// Counts an op that cannot be held up: it was not foreseen, nobody issues it, or whether it is one shows afterwards.
void delays_skip(op_kind kind, const queue_info * queue, uint32_t name);

// One issued op, from before it is recorded until its call has returned: issued and
// returned; or reserved and either accepted or declined. Nothing but one branch without a plan.
class delayed {
public:
    // Counts the op and sleeps before_issue. `backend`: the one whose queue it is on, null for the calling thread.
    delayed(op_kind kind, const queue_info * queue, ggml_backend_t backend, uint32_t name, uint32_t set = NONE) {
        if (__builtin_expect(delays_on, 0)) begin(kind, queue, backend, name, set);
    }
    delayed() = default;   // an op that is not there
    ~delayed() { if (__builtin_expect(active_, 0)) leave(); }
    delayed(const delayed &) = delete;
    delayed & operator=(const delayed &) = delete;

    // What the constructor does, where whether there is an op turns out later.
    void begin(op_kind kind, const queue_info * queue, ggml_backend_t backend, uint32_t name, uint32_t set = NONE);
    bool active() const { return active_; }

    // Its record was made, its call comes next: what the host executes sleeps before_start, fillers are enqueued.
    void issued(const entry & e) { if (__builtin_expect(active_, 0)) is_issued(e ? e.slot : ~0ull); }
    // The call has returned and is recorded: after_end.
    void returned() { if (__builtin_expect(active_, 0)) after_call(); }
    // Instead of these two where the call may be declined: its record is complete afterwards, or there is none.
    void reserved(const entry & e) { if (__builtin_expect(active_, 0)) may_be_issued(e ? e.slot : ~0ull); }
    void accepted() { if (__builtin_expect(active_, 0)) was_accepted(); }
    void declined() { if (__builtin_expect(active_, 0)) undo(); }

private:
    friend std::unique_ptr<delay_match> delays_for_command();
    friend bool delays_pending();
    enum class by : uint8_t { thread, queue, filler, nobody };

    void is_issued(uint64_t slot);
    void may_be_issued(uint64_t slot);
    void was_accepted();
    void after_call();
    void undo();
    void leave();
    void sleep_ahead(delay_place place);
    void recorded(uint64_t slot, delay_place place);
    void device_part(delay_place place);
    void fill(delay_place place);

    bool active_ = false;
    bool late_;            // a wait: it starts when what it waits for has ended
    bool undone_;
    bool handed_;          // the queue's part went with a command
    op_kind kind_;
    by by_;                // who holds the op up on its device's side
    uint32_t name_;
    uint64_t slot_;
    const queue_info * queue_;
    ggml_backend_t backend_;
    delayed * outer_;
    delay_match match_;
};

// Whether a copy that may be declined is expected to be accepted, by what the same kind of copy met before. A call
// that was not met yet is expected to be.
struct copy_route { const void * from, * to, * src, * dst; };
bool copy_expected(const copy_route & r);
void copy_met(const copy_route & r, bool accepted);

}  // namespace td
