// An in-order queue with a worker thread, and the fences that order queues among each other.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "delay_match.h"
#include "containers.hpp"
#include "platform_linux.h"

namespace td {

// Done once. An event record makes a new one, so a later record never changes what an earlier wait waits for.
class fence : public counted {
  public:
    void signal();
    void wait() const;
    bool done() const { return word_.load(std::memory_order_acquire) != 0; }

  private:
    std::atomic<uint32_t> word_{0};
};

// The newest record of a ggml event; null before the first.
class event {
  public:
    // At the call: the fence that the queue will signal. Null = no memory: nothing changed.
    ref<fence> record();
    ref<fence> newest() const;   // at the call: what a wait has to wait for
    void reached();              // recorded, and done at once

  private:
    mutable std::mutex mutex_;
    ref<fence> newest_;
};

enum class command_kind : uint8_t { work, copy, set, get, compute, event_record, event_wait };

// What a queue executes. The queue destroys it on its worker, after `run`.
class command {
  public:
    explicit command(command_kind k) : kind(k) {}
    virtual ~command() = default;
    command(const command &) = delete;
    command & operator=(const command &) = delete;
    virtual void run() = 0;

    const command_kind kind;
    uint64_t slot = ~0ull;        // issue record of the recorder, ~0 = none
    const char * tensor = "";     // name of the tensor it is about, valid while the command lives
    std::unique_ptr<delay_match> delays;   // of a plan, null = none

  private:
    friend class queue;
    friend struct process_watch;
    command * next_ = nullptr;    // in its queue
};

// Seam for delays and tests: called on the executing thread around every command. Either may be null.
// Set before the first queue is made.
struct queue_hooks {
    void (*before_start)(unsigned device, const command & c) = nullptr;
    void (*after_end)(unsigned device, const command & c) = nullptr;
};
extern queue_hooks hooks;

class queue {
  public:
    // `synchronous`: push returns when the command is done.
    queue(unsigned device, bool synchronous);
    // Drains and deletes. False: cannot be had any more, its worker is still in a command while the process ends;
    // then whatever that command uses must be left alone too.
    static bool destroy(queue * q);
    queue(const queue &) = delete;
    queue & operator=(const queue &) = delete;

    void push(std::unique_ptr<command> c);
    // Where no command could be made: everything before it is done, then it runs on the calling thread.
    void run_now(command & c);
    void synchronize();
    bool idle();
    unsigned device() const { return device_; }

    // Adds the command `make()` returns to every queue that has something pending; where it returns null, waits until
    // nothing is.
    static void push_to_busy(std::unique_ptr<command> (*make)(void *), void * argument);

  private:
    friend struct process_watch;
    enum class mode : uint8_t {
        worker,     // the normal one
        direct,     // commands run on the calling thread: no thread could be had, after fork, while exiting
        discarded,  // the process exits while a command is still running: nothing runs any more
    };

    ~queue();
    static void worker_main(void * self);
    void work();
    void execute(command & c);
    void append(std::unique_ptr<command> c);
    std::unique_ptr<command> take_first();

    const unsigned device_;
    const bool synchronous_;
    mode mode_ = mode::worker;
    std::mutex mutex_;
    std::mutex direct_;   // one command at a time in direct mode
    std::condition_variable some_, done_;
    command *first_ = nullptr, *last_ = nullptr;   // waiting
    queue * next_queue_ = nullptr;                 // of the process
    uint64_t pushed_ = 0, finished_ = 0;
    bool stop_ = false;
    bool inherited_ = false;   // from the parent of a forked child
    platform::thread thread_;
};

}  // namespace td
