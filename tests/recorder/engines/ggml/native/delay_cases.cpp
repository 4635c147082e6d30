// A program whose ops are held up by a plan: delay_cases PLUGIN CASE. test_delays.py judges what the spool says.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "fake_host.h"

namespace {

const char * plugin;

ggml_tensor named(ggml_tensor t, const char * name) {
    snprintf(t.name, sizeof t.name, "%s", name);
    return t;
}

struct side {
    explicit side(size_t index, bool again = false)
        : dev(fake::devices.at(index)), b(dev->iface.init_backend(dev, nullptr)),
          memory(fake::allocate(again ? fake::pageable() : dev->iface.get_buffer_type(dev), 4096)) {}
    ggml_tensor at(size_t offset, const char * name) { return named(fake::tensor(memory, offset, 4), name); }
    void sync() { b->iface.synchronize(b); }
    ggml_backend_dev_t dev;
    ggml_backend_t b;
    ggml_backend_buffer_t memory;
};

// Every kind of call that a plan may name, on two devices with three queues and on the host.
void work(side & cpu, side & one, side & two, side & three) {
    ggml_backend_buffer_t pinned = fake::allocate(one.dev->iface.get_host_buffer_type(one.dev), 4096);
    ggml_tensor x = one.at(0, "x"), y = one.at(64, "y \xc3\xa4*"), z = two.at(0, "TAPE1#z#0"), w = three.at(0, "w");
    ggml_tensor h = named(fake::tensor(pinned, 0, 4), "input_embed"), p = cpu.at(0, "plain");
    ggml_tensor sum = named(fake::add(&x, &y, &x), "norm-0"), odd = named(fake::add(&y, &x, &y), "cut \xe2\x82");
    ggml_tensor host_sum = named(fake::add(&p, &p, &p), "conv");
    ggml_tensor unnamed = named(fake::add(&x, &x, &x), "");
    fake::graph g({&sum}), k({&odd, &sum}), host({&host_sum}), u({&unnamed});
    float data[4] = {1, 2, 3, 4};
    ggml_backend_event_t e = one.dev->iface.event_new(one.dev);
    two.b->iface.event_wait(two.b, e);   // before there is a record
    for (int i = 0; i < 3; i++) {
        h.buffer->iface.set_tensor(h.buffer, &h, data, 0, 16);
        one.b->iface.set_tensor_async(one.b, &x, data, 0, 16);
        one.b->iface.set_tensor_async(one.b, &y, p.data, 0, 16);   // read at once: two ops
        CHECK(one.b->iface.cpy_tensor_async(cpu.b, one.b, &h, &x));
        CHECK(!one.b->iface.cpy_tensor_async(cpu.b, one.b, &p, &x));   // pageable: declined
        h.buffer->iface.cpy_tensor(h.buffer, &x, &h);
        x.buffer->iface.cpy_tensor(x.buffer, &p, &x);
        x.buffer->iface.cpy_tensor(x.buffer, &y, &x);
        CHECK(one.b->iface.graph_compute(one.b, &g.g) == GGML_STATUS_SUCCESS);
        CHECK(one.b->iface.graph_compute(one.b, &k.g) == GGML_STATUS_SUCCESS);
        one.b->iface.event_record(one.b, e);
        two.b->iface.event_wait(two.b, e);
        CHECK(two.b->iface.cpy_tensor_async(one.b, two.b, &x, &z));   // runs on the source's queue
        CHECK(cpu.b->iface.graph_compute(cpu.b, &host.g) == GGML_STATUS_SUCCESS);
        three.b->iface.set_tensor_async(three.b, &w, data, 0, 16);
        CHECK(one.b->iface.graph_compute(one.b, &u.g) == GGML_STATUS_SUCCESS);
        two.b->iface.get_tensor_async(two.b, &z, data, 0, 16);
        two.sync();
        one.dev->iface.event_synchronize(one.dev, e);
        x.buffer->iface.memset_tensor(x.buffer, &x, 0, 0, 16);
        z.buffer->iface.get_tensor(z.buffer, &z, data, 0, 16);
    }
    one.sync();
    three.sync();
    one.dev->iface.event_free(one.dev, e);
    fake::release(pinned);
}

struct sides {
    side cpu{0, true}, one{1}, two{2}, three{1};
    void work() { ::work(cpu, one, two, three); }
};

void all() {
    CHECK(fake::load(plugin));
    sides s;
    s.work();
    s.three.b->iface.free(s.three.b);
}

// Two host threads at once, each with its own backend.
void threads() {
    CHECK(fake::load(plugin));
    auto body = [](size_t index) {
        side s(index);
        ggml_tensor x = s.at(0, "x");
        float data[4] = {};
        for (int i = 0; i < 200; i++) s.b->iface.set_tensor_async(s.b, &x, data, 0, 16);
        s.sync();
    };
    std::thread a(body, 1), b(body, 2);
    a.join();
    b.join();
}

// A child goes on where its parent was; what it does is counted from its own start.
void forked() {
    CHECK(fake::load(plugin));
    sides s;
    s.work();
    s.one.sync();
    pid_t child = fork();
    s.work();
    if (!child) exit(0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

// Killed while the first line of the plan is being applied.
void killed() {
    CHECK(fake::load(plugin));
    side s(1);
    ggml_tensor x = s.at(0, "x");
    float data[4] = {};
    for (int i = 0; i < 3; i++) s.b->iface.set_tensor_async(s.b, &x, data, 0, 16);
    s.sync();
    s.b->iface.set_tensor_async(s.b, &x, data, 0, 16);
    const std::string counts = std::string(getenv("TAPEDELAY_DELAYS")) + ".counts";
    uint64_t applied = 0;
    for (int i = 0; !applied && i < 30000; i++) {
        usleep(1000);
        FILE * f = fopen(counts.c_str(), "rb");
        CHECK(f && fseek(f, 64, SEEK_SET) == 0 && fread(&applied, 8, 1, f) == 1);
        fclose(f);
    }
    kill(getpid(), SIGKILL);
}

}  // namespace

int main(int argc, char ** argv) {
    const std::map<std::string, std::function<void()>> cases = {{"all", all}, {"threads", threads}, {"forked", forked}, {"killed", killed}};
    if (argc != 3 || !cases.count(argv[2])) {
        fprintf(stderr, "usage: delay_cases PLUGIN CASE\n");
        return 2;
    }
    plugin = argv[1];
    cases.at(argv[2])();
    return 0;
}
