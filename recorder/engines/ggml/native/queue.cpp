#include "queue.h"

#include <cstdio>
#include <new>

#include "hooks.h"
#include "host.h"
#include "spool.hpp"

namespace td {

queue_hooks hooks;

namespace {

std::atomic<bool> only_this_thread{false};   // in a forked child no worker will ever signal

}  // namespace

void fence::signal() {
    word_.store(1, std::memory_order_release);
    platform::wake_all(word_);
}

void fence::wait() const {
    if (!only_this_thread.load(std::memory_order_relaxed)) {
        platform::wait_while(word_, 0);
    }
}

ref<fence> event::record() {
    ref<fence> next(new (std::nothrow) fence);
    if (next) {
        std::lock_guard<std::mutex> lock(mutex_);
        newest_ = next;
    }
    return next;
}

void event::reached() {
    std::lock_guard<std::mutex> lock(mutex_);
    newest_ = {};
}

ref<fence> event::newest() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return newest_;
}

// All live queues, and what happens to them at fork and exit. Never destroyed: workers may outlive static objects.
struct process_watch {
    std::mutex mutex;
    queue * queues = nullptr;
    // blind: what happens to the process is not seen, so that no thread can be had.
    enum class state { running, exiting, forked, blind } state = state::running;

    static process_watch & get() {
        alignas(process_watch) static unsigned char room[sizeof(process_watch)];
        static auto * watch = new (room) process_watch;
        return *watch;
    }

    process_watch() {
        if (!platform::at_fork(before_fork, after_fork_parent, after_fork_child) || !platform::at_exit(exiting)) {
            state = state::blind;
        }
    }

    static void before_fork() {
        process_watch & w = get();
        w.mutex.lock();
        for (queue * q = w.queues; q; q = q->next_queue_) {
            q->mutex_.lock();
        }
    }
    static void after_fork_parent() {
        process_watch & w = get();
        for (queue * q = w.queues; q; q = q->next_queue_) {
            q->mutex_.unlock();
        }
        w.mutex.unlock();
    }
    // The child has no workers. What was pending is the parent's; what comes later runs on the caller.
    static void after_fork_child() {
        process_watch & w = get();
        w.state = state::forked;
        only_this_thread = true;
        for (queue * q = w.queues; q; q = q->next_queue_) {
            q->first_ = q->last_ = nullptr;   // leaked: a destructor may need locks of threads that are gone
            q->finished_ = q->pushed_;
            q->mode_ = queue::mode::direct;
            q->thread_.started = false;
            q->inherited_ = true;
            q->mutex_.unlock();
        }
        w.mutex.unlock();
    }
    // Static objects of the engine are destroyed after this: no worker may run by then, none may be waited for.
    static void exiting() {
        process_watch & w = get();
        std::lock_guard<std::mutex> lock(w.mutex);
        if (w.state == state::forked) {
            return;
        }
        w.state = state::exiting;
        int patience_ms = 2000;
        for (queue * q = w.queues; q; q = q->next_queue_) {
            std::unique_lock<std::mutex> queue_lock(q->mutex_);
            for (; q->finished_ != q->pushed_ && patience_ms > 0; patience_ms--) {
                queue_lock.unlock();
                platform::sleep_ns(1000000);
                queue_lock.lock();
            }
            q->mode_ = q->finished_ == q->pushed_ ? queue::mode::direct : queue::mode::discarded;
            q->some_.notify_all();
            q->done_.notify_all();
        }
    }
};

queue::queue(unsigned device, bool synchronous) : device_(device), synchronous_(synchronous) {
    process_watch & w = process_watch::get();
    std::lock_guard<std::mutex> lock(w.mutex);
    char name[16];
    snprintf(name, sizeof name, "tape%u", device);
    if (w.state == process_watch::state::running || w.state == process_watch::state::blind) {
        if (w.state == process_watch::state::blind || !platform::thread_start(thread_, worker_main, this, name)) {
            mode_ = mode::direct;
            static std::atomic<bool> told{false};
            const uint32_t why = spool_failed_for();
            if (why != STOP_MEMORY && why != STOP_THREAD && why != STOP_FORK && !told.exchange(true)) {   // else said
                say("TAPE%u: no thread could be had; the engine goes on, commands of the device run on its own threads", device);
            }
        }
    } else {
        mode_ = mode::direct;
    }
    next_queue_ = w.queues;
    w.queues = this;
}

bool queue::destroy(queue * q) {
    q->synchronize();
    {
        std::lock_guard<std::mutex> lock(q->mutex_);
        if (q->mode_ == mode::discarded) {
            return false;
        }
    }
    if (!q->inherited_) {   // else its condition variables still count waiters that are gone
        delete q;
    }
    return true;
}

queue::~queue() {
    process_watch & w = process_watch::get();
    {
        std::lock_guard<std::mutex> lock(w.mutex);
        queue ** at = &w.queues;
        while (*at != this) {
            at = &(*at)->next_queue_;
        }
        *at = next_queue_;
    }
    {
        std::lock_guard<std::mutex> lock(mutex_);
        stop_ = true;
        some_.notify_all();
    }
    platform::thread_join(thread_);
}

void queue::append(std::unique_ptr<command> c) {
    command * added = c.release();
    pushed_++;
    (first_ ? last_->next_ : first_) = added;
    last_ = added;
}

std::unique_ptr<command> queue::take_first() {
    std::unique_ptr<command> c(first_);
    first_ = first_->next_;
    return c;
}

void queue::push(std::unique_ptr<command> c) {
    {
        std::unique_lock<std::mutex> lock(mutex_);
        if (mode_ == mode::worker) {
            append(std::move(c));
            const uint64_t mine = pushed_;
            some_.notify_one();
            if (synchronous_) {
                done_.wait(lock, [&] { return finished_ >= mine || mode_ == mode::discarded; });
            }
            return;
        }
        if (mode_ == mode::discarded) {
            c.release();
            return;
        }
    }
    std::lock_guard<std::mutex> one(direct_);
    internal_scope quiet;
    execute(*c);
}

void queue::run_now(command & c) {
    synchronize();
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (mode_ == mode::discarded) {
            return;
        }
    }
    std::lock_guard<std::mutex> one(direct_);
    internal_scope quiet;
    execute(c);
}

void queue::synchronize() {
    std::unique_lock<std::mutex> lock(mutex_);
    const uint64_t until = pushed_;
    done_.wait(lock, [&] { return finished_ >= until || mode_ != mode::worker; });
}

bool queue::idle() {
    std::lock_guard<std::mutex> lock(mutex_);
    return finished_ == pushed_;
}

void queue::push_to_busy(std::unique_ptr<command> (*make)(void *), void * argument) {
    process_watch & w = process_watch::get();
    std::lock_guard<std::mutex> lock(w.mutex);
    for (queue * q = w.queues; q; q = q->next_queue_) {
        std::unique_lock<std::mutex> queue_lock(q->mutex_);
        if (q->mode_ == mode::worker && q->finished_ != q->pushed_) {
            if (std::unique_ptr<command> c = make(argument)) {
                q->append(std::move(c));
            } else {
                queue_lock.unlock();
                q->synchronize();
            }
        }
    }
}

void queue::worker_main(void * self) {
    internal = true;
    static_cast<queue *>(self)->work();
}

void queue::work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        some_.wait(lock, [this] { return stop_ || mode_ != mode::worker || first_; });
        if (!first_ || mode_ != mode::worker) {
            return;
        }
        std::unique_ptr<command> c = take_first();
        lock.unlock();
        execute(*c);
        c.reset();
        lock.lock();
        finished_++;
        done_.notify_all();
    }
}

void queue::execute(command & c) {
    if (hooks.before_start) {
        hooks.before_start(device_, c);
    }
    const uint64_t start_ns = platform::mono_ns();
    c.run();
    const uint64_t end_ns = platform::mono_ns();
    record_exec(c.slot, start_ns, end_ns);
    if (hooks.after_end) {
        hooks.after_end(device_, c);
    }
}

}  // namespace td
