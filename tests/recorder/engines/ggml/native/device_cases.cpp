// Cases of the test devices, one per run: device_cases PLUGIN CASE. Exit code 0 = as promised.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "fake_host.h"

using fake::add;
using fake::gate;
using fake::graph;
using fake::tensor;
using fake::wait_for_gate;

namespace {

const char * plugin;

struct device {
    explicit device(size_t index)
        : dev(fake::devices.at(index + 1)), b(dev->iface.init_backend(dev, nullptr)),
          memory(fake::allocate(dev->iface.get_buffer_type(dev), 4096)) {
        memory->iface.clear(memory, 0);
    }
    ggml_tensor at(size_t offset, int64_t n = 4) { return tensor(memory, offset, n); }
    void sync() { b->iface.synchronize(b); }
    void compute(graph & g) { CHECK(b->iface.graph_compute(b, &g.g) == GGML_STATUS_SUCCESS); }
    ggml_backend_event_t event() { return dev->iface.event_new(dev); }

    ggml_backend_dev_t dev;
    ggml_backend_t b;
    ggml_backend_buffer_t memory;
};

void put(ggml_tensor & t, float value) {
    std::vector<float> v(size_t(t.ne[0]), value);
    t.buffer->iface.set_tensor(t.buffer, &t, v.data(), 0, v.size() * 4);
}

float first(const ggml_tensor & t) {
    float v;
    t.buffer->iface.get_tensor(t.buffer, &t, &v, 0, 4);
    return v;
}

// Holds a device's queue until the gate opens.
struct holder {
    holder(device & d, int number) : t(d.at(3968)), node(wait_for_gate(number, &t)), g({&node}) { d.compute(g); }
    ggml_tensor t, node;
    graph g;
};

void breathe() { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }

ggml_backend_reg_t start() {
    ggml_backend_reg_t registry = fake::load(plugin);
    CHECK(registry);
    return registry;
}

// --- cases ---------------------------------------------------------------------------------------------------------

void refused() { CHECK(!fake::load(plugin)); }

void registry() {
    ggml_backend_reg_t r = start();
    CHECK(!strcmp(r->iface.get_name(r), "TAPE"));
    CHECK(r->iface.get_device_count(r) == 2);
    CHECK(!fake::load(plugin));   // not a second time
    for (size_t i = 0; i < 2; i++) {
        ggml_backend_dev_t d = r->iface.get_device(r, i);
        CHECK(std::string(d->iface.get_name(d)) == "TAPE" + std::to_string(i));
        CHECK(d->iface.get_type(d) == GGML_BACKEND_DEVICE_TYPE_GPU);
        ggml_backend_dev_props p = {};
        d->iface.get_props(d, &p);
        CHECK(p.caps.async && p.caps.events && p.caps.host_buffer && !p.caps.buffer_from_host_ptr);
        size_t free = 0, total = 0;
        d->iface.get_memory(d, &free, &total);
        CHECK(total == 64u << 20 && free == total);
        CHECK(!fake::allocate(d->iface.get_buffer_type(d), total + 1));
        ggml_backend_buffer_t b = fake::allocate(d->iface.get_buffer_type(d), 1u << 20);
        d->iface.get_memory(d, &free, &total);
        CHECK(free == total - (1u << 20));
        CHECK(!ggml_backend_buffer_is_host(b));
        CHECK(d->iface.supports_buft(d, b->buft) && !d->iface.supports_buft(d, fake::pageable()));
        CHECK(uintptr_t(b->iface.get_base(b)) % 128 == 0);
        fake::release(b);
        ggml_backend_buffer_t pinned = fake::allocate(d->iface.get_host_buffer_type(d), 64);
        CHECK(ggml_backend_buffer_is_host(pinned));
        CHECK(!d->iface.supports_buft(d, pinned->buft));
        fake::release(pinned);
        ggml_tensor t = {};
        t.op = fake::ADD;
        CHECK(d->iface.supports_op(d, &t));
        t.op = fake::UNSUPPORTED;
        CHECK(!d->iface.supports_op(d, &t));
    }
}

void asynchronous() {
    start();
    device d(0);
    ggml_tensor x = d.at(0), y = d.at(128), z = add(&x, &y, &x);
    put(x, 1);
    put(y, 2);
    holder h(d, 0);
    graph g({&z});
    d.compute(g);
    breathe();
    CHECK(first(x) == 1);   // pending: a blocking read does not wait for the queue
    gate[0] = true;
    d.sync();
    CHECK(first(x) == 3);
}

void synchronous() {
    start();
    device d(0), e(1);
    ggml_tensor x = d.at(0), y = d.at(128), z = add(&x, &y, &x);
    put(x, 1);
    put(y, 2);
    graph g({&z});
    d.compute(g);
    CHECK(first(x) == 3);   // no synchronize
    ggml_tensor far = e.at(0);
    CHECK(e.b->iface.cpy_tensor_async(d.b, e.b, &x, &far));
    CHECK(first(far) == 3);
}

void in_order() {
    start();
    device d(0);
    ggml_tensor x = d.at(0), one = d.at(128), z = add(&x, &one, &x);
    put(one, 1);
    graph g({&z});
    for (int i = 0; i < 2000; i++) {
        d.compute(g);
    }
    float v = 0;
    d.b->iface.get_tensor_async(d.b, &x, &v, 0, 4);
    d.sync();
    CHECK(v == 2000);
}

// The host rebuilds its tensors, and frees the buffer objects, while the command waits.
void snapshot() {
    start();
    device d(0);
    ggml_tensor x = d.at(0), y = d.at(128), trap = d.at(256);
    put(x, 1);
    put(y, 2);
    put(trap, 100);
    holder h(d, 0);
    auto * z = new ggml_tensor(add(&x, &y, &x));
    auto * source = new ggml_tensor(y);
    z->src[1] = source;
    auto * g = new graph({z});
    d.compute(*g);
    *source = trap;
    z->src[1] = &trap;
    z->op = fake::FAIL;
    x.data = trap.data;
    g->nodes[0] = nullptr;
    delete z;
    delete source;
    delete g;
    gate[0] = true;
    d.sync();
    x = d.at(0);
    CHECK(first(x) == 3 && first(trap) == 100);
}

// The same nodes again: contents may have changed, links too.
void snapshot_reuse() {
    start();
    device d(0);
    ggml_tensor x = d.at(0), y = d.at(128), w = d.at(256), z = add(&x, &y, &x);
    put(y, 1);
    put(w, 10);
    graph g({&z});
    for (int i = 0; i < 3; i++) {
        d.compute(g);
        d.sync();
    }
    CHECK(first(x) == 3);
    y.data = w.data;   // same struct, other memory
    d.compute(g);
    d.sync();
    CHECK(first(x) == 13);
    y = d.at(128);
    z.src[1] = &w;     // other link
    d.compute(g);
    d.sync();
    CHECK(first(x) == 23);
    for (int i = 0; i < 30; i++) {   // more pending at once than are kept
        z.src[1] = i % 2 ? &y : &w;
        d.compute(g);
    }
    d.sync();
    CHECK(first(x) == 23 + 15 + 150);
}

void event_orders() {
    start();
    device a(0), b(1);
    ggml_tensor x = a.at(0), two = a.at(128), set = add(&two, &two, &x), near = b.at(0), one = b.at(128),
                sum = add(&x, &one, &near);   // reads the other device's memory: fine for a test
    put(two, 2);
    put(one, 1);
    ggml_backend_event_t e = a.event();
    holder h(a, 0);
    graph ga({&set}), gb({&sum});
    a.compute(ga);
    a.b->iface.event_record(a.b, e);
    b.b->iface.event_wait(b.b, e);
    b.compute(gb);
    breathe();
    CHECK(first(near) == 0);
    gate[0] = true;
    b.sync();
    CHECK(first(near) == 5);
    a.dev->iface.event_free(a.dev, e);
}

// A wait means the record that was newest when it was issued, nothing later.
void event_captured() {
    start();
    device a(0), b(1);
    ggml_backend_event_t e = a.event();
    b.b->iface.event_wait(b.b, e);          // never recorded: no effect
    b.sync();
    a.b->iface.event_record(a.b, e);
    a.sync();
    b.b->iface.event_wait(b.b, e);          // the finished one
    holder h(a, 0);
    a.b->iface.event_record(a.b, e);        // a later one, pending
    b.sync();                               // must not wait for it
    a.dev->iface.event_synchronize(nullptr, nullptr);
    std::atomic<bool> done{false};
    std::thread waiter([&] {
        a.dev->iface.event_synchronize(a.dev, e);   // the newest: pending
        done = true;
    });
    breathe();
    CHECK(!done);
    // recorded again on an idle queue: that finishes first, and must not release who waits for the older one
    b.b->iface.event_record(b.b, e);
    b.sync();
    breathe();
    CHECK(!done);
    a.dev->iface.event_synchronize(a.dev, e);   // the newest is b's by now
    gate[0] = true;
    waiter.join();
}

void event_foreign() {
    start();
    device d(0);
    ggml_backend_event foreign = {fake::devices[0], nullptr};
    d.b->iface.event_record(d.b, &foreign);
    d.b->iface.event_wait(d.b, &foreign);
    d.sync();
}

void event_freed_while_pending() {
    start();
    device a(0), b(1);
    ggml_backend_event_t e = a.event();
    holder h(a, 0);
    a.b->iface.event_record(a.b, e);
    b.b->iface.event_wait(b.b, e);
    a.dev->iface.event_free(a.dev, e);
    gate[0] = true;
    b.sync();
    a.sync();
}

void copy_profiles() {   // the profile under test in argv: a = async_h2d, b = async_d2d
    start();
    const bool h2d = getenv("EXPECT_H2D") != nullptr, d2d = getenv("EXPECT_D2D") != nullptr;
    device a(0), b(1);
    ggml_backend_t cpu = fake::devices[0]->iface.init_backend(fake::devices[0], nullptr);
    ggml_backend_buffer_t pinned = fake::allocate(a.dev->iface.get_host_buffer_type(a.dev), 256);
    ggml_backend_buffer_t plain = fake::allocate(fake::pageable(), 256);
    ggml_tensor p = tensor(pinned, 0, 4), q = tensor(plain, 0, 4), x = a.at(0), x2 = a.at(128), y = b.at(0);
    put(x2, 7);
    CHECK(a.b->iface.cpy_tensor_async(cpu, a.b, &p, &x) == h2d);
    CHECK(!a.b->iface.cpy_tensor_async(cpu, a.b, &q, &x));            // pageable: never
    CHECK(!a.b->iface.cpy_tensor_async(a.b, cpu, &x, &p));            // to the host: never
    CHECK(a.b->iface.cpy_tensor_async(a.b, a.b, &x2, &x));            // on one device: always
    a.sync();
    CHECK(first(x) == 7);
    CHECK(b.b->iface.cpy_tensor_async(a.b, b.b, &x, &y) == d2d);
    b.sync();
    CHECK(first(y) == (d2d ? 7 : 0));
    // blocking, through the buffer: any host memory and any test device
    ggml_tensor r = b.at(256);
    put(p, 3);
    CHECK(b.memory->iface.cpy_tensor(b.memory, &p, &r) && first(r) == 3);
    CHECK(b.memory->iface.cpy_tensor(b.memory, &x, &r) && first(r) == 7);
}

// The copy runs on the source's queue, the destination's waits for it: and for nothing else.
void copy_between() {
    start();
    device a(0), b(1);
    ggml_tensor x = a.at(0), two = a.at(128), set = add(&two, &two, &x), y = b.at(0), one = b.at(128), y1 = b.at(256),
                sum = add(&y, &one, &y1);
    put(two, 2);
    put(one, 1);
    holder h(a, 0);
    graph ga({&set}), gb({&sum});
    a.compute(ga);
    CHECK(b.b->iface.cpy_tensor_async(a.b, b.b, &x, &y));
    b.compute(gb);
    breathe();
    CHECK(first(y) == 0 && first(y1) == 0);
    gate[0] = true;
    b.sync();
    CHECK(first(y1) == 5);
    gate[0] = false;
    holder busy(b, 0);
    put(x, 9);
    CHECK(b.b->iface.cpy_tensor_async(a.b, b.b, &x, &y));
    a.sync();
    CHECK(first(y) == 9);   // the destination's earlier work is not waited for: who wants that says so
    gate[0] = true;
    b.sync();
}

void set_reads_when() {
    start();
    device d(0);
    ggml_backend_buffer_t pinned = fake::allocate(d.dev->iface.get_host_buffer_type(d.dev), 256);
    ggml_tensor p = tensor(pinned, 0, 4), x = d.at(0), y = d.at(128);
    float plain[4] = {1, 1, 1, 1};
    put(p, 1);
    holder h(d, 0);
    d.b->iface.set_tensor_async(d.b, &x, plain, 0, 16);
    d.b->iface.set_tensor_async(d.b, &y, p.data, 0, 16);
    plain[0] = 2;
    put(p, 2);
    gate[0] = true;
    d.sync();
    CHECK(first(x) == 1);   // pageable memory was read at the call
    CHECK(first(y) == (getenv("EXPECT_PINNED") ? 2 : 1));
}

void buffer_freed_while_pending() {
    start();
    device d(0), e(1);
    ggml_backend_buffer_t m = fake::allocate(d.dev->iface.get_buffer_type(d.dev), 8 << 20);
    ggml_backend_buffer_t pinned = fake::allocate(d.dev->iface.get_host_buffer_type(d.dev), 8 << 20);
    ggml_tensor x = tensor(m, 4 << 20, 4), y = d.at(0), far = e.at(0), p = tensor(pinned, 4 << 20, 4), q = d.at(128);
    put(x, 5);
    put(p, 6);
    ggml_tensor z = add(&x, &x, &y);
    graph g({&z});
    holder h(d, 0);
    d.compute(g);
    d.b->iface.set_tensor_async(d.b, &q, p.data, 0, 16);
    CHECK(e.b->iface.cpy_tensor_async(d.b, e.b, &x, &far));
    fake::release(m);
    fake::release(pinned);
    size_t free = 0, total = 0;
    d.dev->iface.get_memory(d.dev, &free, &total);
    CHECK(total - free >= 8u << 20);   // still there
    gate[0] = true;
    d.sync();
    e.sync();
    CHECK(first(y) == 10 && first(far) == 5 && first(q) == 6);
    d.dev->iface.get_memory(d.dev, &free, &total);
    CHECK(total - free == 4096);
}

void backend_free_drains() {
    start();
    device d(0);
    ggml_tensor x = d.at(0), one = d.at(128), z = add(&x, &one, &x);
    put(one, 1);
    holder h(d, 0);
    graph g({&z});
    d.compute(g);
    std::thread opener([] {
        breathe();
        gate[0] = true;
    });
    d.b->iface.free(d.b);
    opener.join();
    CHECK(first(x) == 1);
}

void failure_is_sticky() {
    start();
    device d(0);
    ggml_tensor x = d.at(0), z = add(&x, &x, &x);
    z.op = fake::FAIL;
    graph g({&z});
    d.compute(g);
    d.sync();
    CHECK(d.b->iface.graph_compute(d.b, &g.g) == GGML_STATUS_FAILED);
}

void exit_while_pending() {   // as an engine ends that never frees anything
    static struct late {
        device * d = nullptr;
        ~late() { d->b->iface.free(d->b); }   // and one whose static objects do
    } last;
    start();
    last.d = new device(0);
    new holder(*last.d, 0);
    gate[0] = getenv("OPEN") != nullptr;
    exit(0);
}

void fork_child() {
    start();
    device d(0);
    ggml_tensor x = d.at(0), one = d.at(128), z = add(&x, &one, &x);
    put(one, 1);
    graph g({&z});
    d.compute(g);
    d.sync();
    holder h(d, 0);
    ggml_backend_event_t e = d.event();
    d.b->iface.event_record(d.b, e);   // pending in the parent
    const pid_t child = fork();
    if (child == 0) {
        alarm(10);
        d.b->iface.event_wait(d.b, e);
        d.compute(g);
        d.sync();
        d.dev->iface.event_synchronize(d.dev, e);
        if (first(x) != 2) {
            _exit(7);
        }
        device more(0);
        more.compute(g);
        more.b->iface.free(more.b);
        d.b->iface.free(d.b);
        exit(first(x) == 3 ? 0 : 8);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    if (status) fprintf(stderr, "child: %x\n", status);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    gate[0] = true;
    d.sync();
    d.compute(g);
    d.sync();
    CHECK(first(x) == 2);
}

// Several host threads, each with its own backend, and events across.
void many_threads() {
    start();
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int n = 0; n < 4; n++) {
        threads.emplace_back([n, &wrong] {
            device d(size_t(n % 2)), o(size_t((n + 1) % 2));
            ggml_backend_event_t e = d.event();
            ggml_tensor x = d.at(0), one = d.at(128), z = add(&x, &one, &x), far = o.at(0);
            put(one, 1);
            graph g({&z});
            for (int i = 0; i < 300; i++) {
                d.compute(g);
                CHECK(o.b->iface.cpy_tensor_async(d.b, o.b, &x, &far));
                o.b->iface.event_record(o.b, e);
                d.b->iface.event_wait(d.b, e);
                if (i % 50 == 0) {
                    d.dev->iface.event_synchronize(d.dev, e);
                    wrong += first(far) != float(i + 1);
                }
            }
            o.sync();
            wrong += first(far) != 300;
            fake::release(d.memory);
            fake::release(o.memory);
            d.b->iface.free(d.b);
            o.b->iface.free(o.b);
        });
    }
    for (auto & t : threads) {
        t.join();
    }
    CHECK(wrong == 0);
}

}  // namespace

int main(int argc, char ** argv) {
    const std::map<std::string, std::function<void()>> cases = {
#define CASE(name) {#name, name}
        CASE(refused), CASE(registry), CASE(asynchronous), CASE(synchronous), CASE(in_order), CASE(snapshot),
        CASE(snapshot_reuse), CASE(event_orders), CASE(event_captured), CASE(event_foreign),
        CASE(event_freed_while_pending), CASE(copy_profiles), CASE(copy_between), CASE(set_reads_when),
        CASE(buffer_freed_while_pending), CASE(backend_free_drains), CASE(failure_is_sticky),
        CASE(exit_while_pending), CASE(fork_child), CASE(many_threads),
    };
    if (argc != 3 || !cases.count(argv[2])) {
        fprintf(stderr, "usage: device_cases PLUGIN CASE\n");
        return 2;
    }
    plugin = argv[1];
    cases.at(argv[2])();
    return 0;
}
