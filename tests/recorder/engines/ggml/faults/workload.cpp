// One run of everything the plugin does, on the fake host: workload PLUGIN. What it prints depends on the arithmetic
// only, so a run in which the plugin had to do without something prints the same. "refused" = the plugin is not there.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "fake_host.h"

using fake::tensor;

namespace {

// As the engine does it: who is told that there is no memory gives up.
ggml_backend_buffer_t allocate(ggml_backend_buffer_type_t type, size_t bytes) {
    ggml_backend_buffer_t b = fake::allocate(type, bytes);
    if (!b) {
        printf("no device memory\n");
        exit(0);
    }
    return b;
}

struct device {
    explicit device(ggml_backend_dev_t d)
        : dev(d), b(d->iface.init_backend(d, nullptr)), memory(allocate(d->iface.get_buffer_type(d), 16384)) {
        CHECK(b);
        if (memory->iface.clear) {
            memory->iface.clear(memory, 0);
        }
    }
    void done() {
        b->iface.free(b);
        fake::release(memory);
    }
    void sync() {
        if (b->iface.synchronize) {
            b->iface.synchronize(b);
        }
    }
    ggml_tensor at(size_t place, const char * name) {
        ggml_tensor t = tensor(memory, place * 128, 4);
        snprintf(t.name, sizeof t.name, "%s", name);
        return t;
    }
    ggml_backend_dev_t dev;
    ggml_backend_t b;
    ggml_backend_buffer_t memory;
};

// As ggml's scheduler copies between backends.
void copy(device & from, device & to, ggml_tensor & src, ggml_tensor & dst) {
    if (to.b->iface.cpy_tensor_async && to.b->iface.cpy_tensor_async(from.b, to.b, &src, &dst)) {
        return;
    }
    from.sync();
    to.sync();
    if (dst.buffer->iface.cpy_tensor && dst.buffer->iface.cpy_tensor(dst.buffer, &src, &dst)) {
        return;
    }
    if (dst.buffer->iface.set_tensor) {
        dst.buffer->iface.set_tensor(dst.buffer, &dst, src.data, 0, size_t(src.ne[0]) * 4);   // from the host
    } else {
        src.buffer->iface.get_tensor(src.buffer, &src, dst.data, 0, size_t(src.ne[0]) * 4);   // to the host
    }
}

void compute(device & d, std::vector<ggml_tensor *> nodes, uint64_t uid = 0) {
    fake::graph g(std::move(nodes));
    g.g.uid = uid;
    CHECK(d.b->iface.graph_compute(d.b, &g.g) == GGML_STATUS_SUCCESS);
}

struct machine {
    device a{fake::devices.at(1)}, b{fake::devices.at(2)}, cpu{fake::devices.at(0)};
    ggml_backend_buffer_t pinned = allocate(a.dev->iface.get_host_buffer_type(a.dev), 4096);

    void done() {
        a.done();
        b.done();
        cpu.done();
        fake::release(pinned);
    }

    // An input goes to a, on to b, is added up on both and on the CPU; `names` new names.
    float round(int number, int names) {
        ggml_tensor in = tensor(pinned, 0, 4);
        const float value[4] = {float(number), 1, 2, 3}, more[4] = {0.5f, 0, 0, 0};
        memcpy(in.data, value, sizeof value);
        ggml_tensor x = a.at(0, "x"), y = a.at(1, "y"), far = b.at(0, "far"), sum = b.at(1, "sum"), back = cpu.at(0, "back");
        copy(cpu, a, in, x);
        a.b->iface.set_tensor_async(a.b, &y, more, 0, sizeof more);
        std::vector<ggml_tensor> nodes;
        nodes.reserve(size_t(names));
        std::vector<ggml_tensor *> list;
        for (int i = 0; i < names; i++) {
            nodes.push_back(fake::add(&x, &y, &y));
            snprintf(nodes.back().name, sizeof nodes.back().name, "node-%d-%d", number, i);
            list.push_back(&nodes.back());
        }
        compute(a, list, uint64_t(number) + 1);
        ggml_backend_event_t e = a.dev->iface.event_new(a.dev);
        CHECK(e);
        a.b->iface.event_record(a.b, e);
        b.b->iface.event_wait(b.b, e);
        copy(a, b, y, far);
        ggml_tensor twice = fake::add(&far, &far, &sum);
        compute(b, {&twice});
        b.b->iface.event_record(b.b, e);
        a.dev->iface.event_synchronize(a.dev, e);
        a.dev->iface.event_free(a.dev, e);
        copy(b, cpu, sum, back);
        ggml_tensor again = fake::add(&back, &back, &back);
        compute(cpu, {&again});
        float got[4] = {}, here[4] = {};
        b.b->iface.get_tensor_async(b.b, &sum, got, 0, sizeof got);
        b.sync();
        a.sync();
        memcpy(here, back.data, sizeof here);
        return got[0] * 1000 + here[0] + got[1];
    }
};

// A buffer is freed while a command that uses it waits.
float freed_while_pending(machine & m, int number) {
    ggml_backend_buffer_t gone = allocate(m.a.dev->iface.get_buffer_type(m.a.dev), 4096);
    ggml_tensor x = tensor(gone, 0, 4), into = m.a.at(3, "into"), gate = m.a.at(4, "gate");
    const float seven[4] = {7, 7, 7, 7};
    gone->iface.set_tensor(gone, &x, seven, 0, sizeof seven);
    fake::gate[number] = false;
    std::thread opener([=] {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        fake::gate[number] = true;
    });
    ggml_tensor held = fake::wait_for_gate(number, &gate), sum = fake::add(&x, &x, &into);
    compute(m.a, {&held});
    compute(m.a, {&sum});
    fake::release(gone);
    m.a.sync();
    opener.join();
    float got = 0;
    into.buffer->iface.get_tensor(into.buffer, &into, &got, 0, 4);
    return got;
}

void threads(machine & m) {
    std::vector<std::thread> all;
    for (int i = 0; i < 3; i++) {
        all.emplace_back([&m, i] {
            device own(fake::devices[0]);
            for (int k = 0; k < 50; k++) {
                ggml_tensor x = own.at(size_t(i), "thread");
                float one[4] = {1, 1, 1, 1};
                memcpy(x.data, one, sizeof one);
                ggml_tensor y = fake::add(&x, &x, &x);
                compute(own, {&y});
            }
            own.done();
        });
    }
    for (auto & t : all) {
        t.join();
    }
}

}  // namespace

int main(int argc, char ** argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: workload PLUGIN\n");
        return 2;
    }
    if (!fake::load(argv[1])) {
        printf("refused\n");
        return 0;
    }
    machine m;
    for (int i = 0; i < 12; i++) {
        printf("round %d: %g\n", i, double(m.round(i % 8, 3 + 40 * (i % 3))));
    }
    printf("freed: %g\n", double(freed_while_pending(m, 0)));
    // more objects than the first tables hold
    std::vector<ggml_backend_buffer_t> many;
    for (int i = 0; i < 300; i++) {
        many.push_back(allocate(m.a.dev->iface.get_host_buffer_type(m.a.dev), 64));
    }
    for (size_t i = 0; i < many.size(); i += 2) {
        fake::release(many[i]);
    }
    threads(m);
    // more records than one segment holds
    ggml_tensor x = m.a.at(0, "x");
    float sum = 0;
    for (int i = 0; i < 9000; i++) {
        float got;
        x.buffer->iface.get_tensor(x.buffer, &x, &got, 0, 4);
        sum += got;
    }
    printf("read: %g\n", double(sum));
    fflush(stdout);
    if (pid_t child = fork()) {
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        printf("child: %d\n", status);
    } else {
        if (const char * own = getenv("CHILD_STDERR")) {
            CHECK(freopen(own, "w", stderr));
        }
        printf("in the child: %g\n", double(m.round(3, 4)));
        exit(0);
    }
    printf("after: %g\n", double(m.round(5, 7)));
    for (size_t i = 1; i < many.size(); i += 2) {
        fake::release(many[i]);
    }
    m.done();
    return 0;
}
