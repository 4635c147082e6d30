// What the recorder writes about calls on a host of our own making, one case per run: recorder_cases PLUGIN CASE.
// FAKE_GPU: name of the registry of a device that is not ours, whose asynchronous set copies at once.
// test_recording.py judges the spool.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "check.h"
#include "fake_host.h"

namespace {

const char * plugin;

// --- the device that is not ours

ggml_backend_device gpu;
ggml_backend_reg registry;

template <class T>
ggml_backend_buffer_type_t make_type(const char * (*name)(ggml_backend_buffer_type_t), bool (*is_host)(ggml_backend_buffer_type_t)) {
    auto * t = new T{};
    t->get_name = name;
    t->alloc_buffer = [](ggml_backend_buffer_type_t type, size_t size) {
        auto * b = new ggml_backend_buffer{};
        b->iface.free_buffer = [](ggml_backend_buffer_t self) { free(self->context); };
        b->iface.get_base = [](ggml_backend_buffer_t self) { return self->context; };
        b->buft = type;
        b->context = aligned_alloc(128, (size + 127) / 128 * 128);
        b->size = size;
        return b;
    };
    t->is_host = is_host;
    t->device = &gpu;
    return reinterpret_cast<ggml_backend_buffer_type_t>(t);
}

ggml_backend_buffer_type_t type_of(bool host) {
    static const bool v3 = !getenv("FAKE_API") || !strcmp(getenv("FAKE_API"), "3");
    static auto make = [](const char * (*name)(ggml_backend_buffer_type_t), bool (*is_host)(ggml_backend_buffer_type_t)) {
        return v3 ? make_type<ggml_backend_buffer_type_v3>(name, is_host) : make_type<ggml_backend_buffer_type_v2>(name, is_host);
    };
    static ggml_backend_buffer_type_t own = make([](auto) -> const char * { return "GPU"; }, [](auto) { return false; });
    static ggml_backend_buffer_type_t pinned = make([](auto) -> const char * { return "GPU_Host"; }, [](auto) { return true; });
    return host ? pinned : own;
}

ggml_backend_t init_gpu(ggml_backend_dev_t dev, const char *) {
    auto * b = new ggml_backend{};
    b->device = dev;
    b->iface.get_name = [](ggml_backend_t) -> const char * { return "GPU0"; };
    b->iface.free = [](ggml_backend_t self) { delete self; };
    b->iface.graph_compute = [](ggml_backend_t, ggml_cgraph *) { return GGML_STATUS_SUCCESS; };
    b->iface.synchronize = [](ggml_backend_t) {};
    b->iface.set_tensor_async = [](ggml_backend_t, ggml_tensor * t, const void * data, size_t offset, size_t size) {
        memcpy(static_cast<char *>(t->data) + offset, data, size);
    };
    b->iface.event_record = [](ggml_backend_t, ggml_backend_event_t) {};
    b->iface.event_wait = [](ggml_backend_t, ggml_backend_event_t) {};
    return b;
}

void add_gpu() {
    registry.api_version = getenv("FAKE_API") ? atoi(getenv("FAKE_API")) : 3;
    registry.iface.get_name = [](ggml_backend_reg_t) -> const char * { return getenv("FAKE_GPU"); };
    registry.iface.get_device_count = [](ggml_backend_reg_t) -> size_t { return 1; };
    registry.iface.get_device = [](ggml_backend_reg_t, size_t) { return &gpu; };
    gpu.reg = &registry;
    gpu.iface.get_name = gpu.iface.get_description = [](ggml_backend_dev_t) -> const char * { return "GPU0"; };
    gpu.iface.get_type = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_GPU; };
    gpu.iface.get_props = [](ggml_backend_dev_t, ggml_backend_dev_props * p) {
        *p = {};
        p->caps.async = p->caps.events = true;
    };
    gpu.iface.init_backend = init_gpu;
    gpu.iface.get_buffer_type = [](ggml_backend_dev_t) { return type_of(false); };
    gpu.iface.get_host_buffer_type = [](ggml_backend_dev_t) { return type_of(true); };
    gpu.iface.supports_op = [](ggml_backend_dev_t, const ggml_tensor *) { return true; };
    gpu.iface.event_new = [](ggml_backend_dev_t dev) { return new ggml_backend_event{dev, nullptr}; };
    gpu.iface.event_free = [](ggml_backend_dev_t, ggml_backend_event_t e) { delete e; };
    gpu.iface.event_synchronize = [](ggml_backend_dev_t, ggml_backend_event_t) {};
    fake::devices.push_back(&gpu);
}

// --- cases ---------------------------------------------------------------------------------------------------------

ggml_backend_buffer_t buffer(ggml_backend_buffer_type_t type) {
    ggml_backend_buffer_t b = fake::allocate(type, 4096);
    CHECK(b);
    return b;
}

char * base(ggml_backend_buffer_t b) { return static_cast<char *>(b->iface.get_base(b)); }

// An asynchronous set from pageable memory, from pinned memory and from memory nobody knows.
void sources() {
    CHECK(fake::load(plugin));
    ggml_backend_dev_t dev = fake::devices[1];
    ggml_backend_t b = dev->iface.init_backend(dev, nullptr);
    ggml_backend_buffer_t pageable = buffer(fake::pageable()), pinned = buffer(dev->iface.get_host_buffer_type(dev));
    ggml_backend_buffer_t memory = buffer(dev->iface.get_buffer_type(dev));
    ggml_tensor to = fake::tensor(memory, 0, 64);
    std::vector<char> unknown(256);
    for (const char * from : {base(pageable) + 512, base(pinned) + 512, unknown.data()}) {
        b->iface.set_tensor_async(b, &to, from, 128, 64);
    }
    b->iface.synchronize(b);
}

// The source of an asynchronous set is written again while the set may be pending.
void overwritten() {
    CHECK(fake::load(plugin));
    ggml_backend_dev_t dev = fake::devices[1];
    ggml_backend_t b = dev->iface.init_backend(dev, nullptr), cpu = fake::devices[0]->iface.init_backend(fake::devices[0], nullptr);
    bool pin = getenv("PINNED");
    ggml_backend_buffer_t source = buffer(pin ? dev->iface.get_host_buffer_type(dev) : fake::pageable());
    ggml_tensor to = fake::tensor(buffer(dev->iface.get_buffer_type(dev)), 0, 64);
    ggml_tensor from = fake::tensor(source, 0, 64), again = fake::add(&from, &from, &from);
    fake::graph g({&again});
    memset(from.data, 0, 256);
    b->iface.set_tensor_async(b, &to, from.data, 0, 256);
    CHECK(cpu->iface.graph_compute(cpu, &g.g) == GGML_STATUS_SUCCESS);
    b->iface.synchronize(b);
}

// Far more host buffers than usual, half of them freed and made again; each tells itself from the others.
void many_buffers() {
    CHECK(fake::load(plugin));
    ggml_backend_dev_t dev = fake::devices[1];
    ggml_backend_t b = dev->iface.init_backend(dev, nullptr);
    ggml_tensor to = fake::tensor(buffer(dev->iface.get_buffer_type(dev)), 0, 64);
    std::vector<ggml_backend_buffer_t> all;
    for (int i = 0; i < 3000; i++) all.push_back(buffer(dev->iface.get_host_buffer_type(dev)));
    for (size_t i = 0; i < all.size(); i += 2) fake::release(all[i]);
    for (size_t i = 0; i < all.size(); i += 2) all[i] = buffer(dev->iface.get_host_buffer_type(dev));
    for (size_t i = 0; i < all.size(); i += 100) {
        b->iface.set_tensor_async(b, &to, base(all[i]) + 16, 0, 64);
        b->iface.set_tensor_async(b, &to, base(all[i + 1]) + 32, 0, 64);
    }
    b->iface.synchronize(b);
}

// Two events of the device that is not ours: one from before the recorder, one from after.
void events() {
    ggml_backend_event_t early = gpu.iface.event_new(&gpu);
    CHECK(fake::load(plugin));
    ggml_backend_t b = gpu.iface.init_backend(&gpu, nullptr);
    ggml_backend_event_t known = gpu.iface.event_new(&gpu);
    for (ggml_backend_event_t e : {early, known}) {
        b->iface.event_wait(b, e);
        b->iface.event_record(b, e);
        b->iface.event_wait(b, e);
    }
}

}  // namespace

int main(int argc, char ** argv) {
    const std::map<std::string, std::function<void()>> cases = {
        {"sources", sources}, {"overwritten", overwritten}, {"many_buffers", many_buffers}, {"events", events},
    };
    if (argc != 3 || !cases.count(argv[2])) {
        fprintf(stderr, "usage: recorder_cases PLUGIN CASE\n");
        return 2;
    }
    plugin = argv[1];
    if (getenv("FAKE_GPU")) add_gpu();
    cases.at(argv[2])();
    return 0;
}
