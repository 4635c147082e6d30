// LD_PRELOADed: stands between a program and its ggml's scheduler. Lives in every process of a recorded command, so it
// has no constructor, no state that is not zero, needs nothing but libc, and does nothing where no ggml calls it.
//
// Arguments are passed on as register words, more of them than any function has today: a build that adds one works.
#include "tap_table.h"

#include <cstddef>

#include <dlfcn.h>
#include <link.h>

namespace {

using word = uintptr_t;
using function_t = word (*)(word, word, word, word, word, word);
using new_t = word (*)(word, word, word, word, word, word, word, word, word, word);

const char * const NAMES[TAPEDELAY_TAP_KINDS] = {
    "ggml_backend_sched_new",
    "ggml_backend_sched_free",
    "ggml_backend_sched_graph_compute",
    "ggml_backend_sched_graph_compute_async",
    "ggml_backend_sched_alloc_graph",
    "ggml_backend_sched_reset",
    "ggml_backend_sched_set_tensor_backend",
};

// Where the calls from one piece of code go: the ggml in whose scope it stands.
struct route {
    word from, to;          // the caller's code; empty: only for this call
    void * real[TAPEDELAY_TAP_KINDS];
    const void * ggml;      // base of the object that holds them
    uint32_t ready;
};

constexpr uint32_t MAX_ROUTES = 64;
route routes[MAX_ROUTES];
uint32_t n_routes;
const tapedelay_tap_table * attached;

const void * object_of(const void * address) {
    Dl_info info;
    return address && dladdr(const_cast<void *>(address), &info) ? info.dli_fbase : nullptr;
}

const void * own_object() { return object_of(reinterpret_cast<const void *>(&object_of)); }

// Not ourselves: an object's scope may begin with what was preloaded.
void * real_in(void * handle, const char * name) {
    void * at = dlsym(handle, name);
    return at && object_of(at) != own_object() ? at : nullptr;
}

bool fill(route & r, void * handle) {
    void * first = handle ? real_in(handle, NAMES[TAPEDELAY_TAP_COMPUTE_ASYNC]) : nullptr;
    if (!first) return false;
    r.ggml = object_of(first);
    for (uint32_t i = 0; i < TAPEDELAY_TAP_KINDS; i++) r.real[i] = real_in(handle, NAMES[i]);
    return true;
}

struct place {
    word address, from, to;
    const char * object;
};

int find_place(dl_phdr_info * info, size_t, void * data) {
    auto & p = *static_cast<place *>(data);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) & h = info->dlpi_phdr[i];
        const word from = info->dlpi_addr + h.p_vaddr, to = from + h.p_memsz;
        if (h.p_type == PT_LOAD && p.address >= from && p.address < to) {
            p.from = from;
            p.to = to;
            p.object = info->dlpi_name;
            return 1;
        }
    }
    return 0;
}

// Any object that has a ggml; of several the recorded one, or one that is not.
struct any_ggml {
    bool wanted;            // the recorded one
    void * handle;
    bool fits;
};

int find_any(dl_phdr_info * info, size_t, void * data) {
    auto & any = *static_cast<any_ggml *>(data);
    if (!info->dlpi_name || !info->dlpi_name[0]) return 0;
    void * handle = dlopen(info->dlpi_name, RTLD_NOLOAD | RTLD_LAZY);
    void * at = handle ? real_in(handle, NAMES[TAPEDELAY_TAP_COMPUTE_ASYNC]) : nullptr;
    const tapedelay_tap_table * t = __atomic_load_n(&attached, __ATOMIC_ACQUIRE);
    const bool fits = at && (t && object_of(at) == t->ggml) == any.wanted;
    if (at && (!any.handle || fits)) {
        if (any.handle) dlclose(any.handle);
        any.handle = handle;
        any.fits = fits;
    } else if (handle) {
        dlclose(handle);
    }
    return any.fits;
}

// The ggml in the scope of the code that calls. That code and its ggml stay loaded from then on: the handle is kept.
bool route_of_caller(route & r, word address) {
    place p = {address, 0, 0, nullptr};
    dl_iterate_phdr(find_place, &p);
    if (!p.object) return false;
    const bool program = !p.object[0];
    void * handle = dlopen(program ? nullptr : p.object, RTLD_LAZY | (program ? 0 : RTLD_NOLOAD));
    if (!fill(r, handle) && !(program && fill(r, RTLD_NEXT))) {
        if (handle) dlclose(handle);
        return false;
    }
    r.from = p.from;
    r.to = p.to;
    return true;
}

// A caller without a ggml in its scope: a foreign function interface, or a call that was the last of its function.
void route_of_sched(route & r, void * sched) {
    if (fill(r, RTLD_NEXT)) return;
    const tapedelay_tap_table * t = __atomic_load_n(&attached, __ATOMIC_ACQUIRE);
    any_ggml any = {!t || !sched || t->knows(sched), nullptr, false};
    dl_iterate_phdr(find_any, &any);
    fill(r, any.handle);
    if (any.handle) dlclose(any.handle);
}

// `own` is where a route is put that is good for this call only.
const route & find_route(const void * caller, word sched, route & own) {
    const auto address = reinterpret_cast<word>(caller);
    const uint32_t known = __atomic_load_n(&n_routes, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < known && i < MAX_ROUTES; i++) {
        const route & r = routes[i];
        if (__atomic_load_n(&r.ready, __ATOMIC_ACQUIRE) && address >= r.from && address < r.to) return r;
    }
    own = {};
    if (!route_of_caller(own, address)) {
        route_of_sched(own, reinterpret_cast<void *>(sched));
        return own;
    }
    const uint32_t i = known < MAX_ROUTES ? __atomic_fetch_add(&n_routes, 1u, __ATOMIC_ACQ_REL) : MAX_ROUTES;
    if (i >= MAX_ROUTES) return own;
    routes[i] = own;
    __atomic_store_n(&routes[i].ready, 1u, __ATOMIC_RELEASE);
    return routes[i];
}

const tapedelay_tap_table * table_for(const route & r) {
    const tapedelay_tap_table * t = __atomic_load_n(&attached, __ATOMIC_ACQUIRE);
    return t && r.ggml == t->ggml ? t : nullptr;
}

// What a call returns that leads nowhere: nothing, false, GGML_STATUS_FAILED.
word nowhere(uint32_t kind) {
    const bool computes = kind == TAPEDELAY_TAP_COMPUTE || kind == TAPEDELAY_TAP_COMPUTE_ASYNC;
    return computes ? static_cast<word>(-1) : 0;
}

bool succeeded(uint32_t kind, word result) {
    if (kind == TAPEDELAY_TAP_ALLOC) return static_cast<uint8_t>(result) != 0;
    if (kind == TAPEDELAY_TAP_RESET) return true;
    return static_cast<int>(result) == 0;
}

inline word around(uint32_t kind, const void * caller, word a, word b, word c, word d, word e, word f) {
    route own;
    const route & r = find_route(caller, a, own);
    const auto real = reinterpret_cast<function_t>(r.real[kind]);
    if (!real) return nowhere(kind);
    const tapedelay_tap_table * t = table_for(r);
    if (!t) return real(a, b, c, d, e, f);
    tapedelay_tap_call call = {};
    t->begin(&call, kind, reinterpret_cast<void *>(a), reinterpret_cast<void *>(b));
    const word result = real(a, b, c, d, e, f);
    t->end(&call, succeeded(kind, result));
    return result;
}

}  // namespace

#define TAP extern "C" __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)

TAP uint32_t tapedelay_tap_attach(const tapedelay_tap_table * table) {
    if (!table || table->version != TAPEDELAY_TAP_VERSION || table->bytes < sizeof *table) return 0;
    __atomic_store_n(&attached, table, __ATOMIC_RELEASE);
    return TAPEDELAY_TAP_VERSION;
}

// Six words are what registers hold; what lies behind them on the caller's stack goes on as well.
TAP word ggml_backend_sched_new(word a, word b, word c, word d, word e, word f, word g, word h, word i, word j) {
    route own;
    const route & r = find_route(CALLER, 0, own);
    const auto real = reinterpret_cast<new_t>(r.real[TAPEDELAY_TAP_NEW]);
    if (!real) return nowhere(TAPEDELAY_TAP_NEW);
    const word sched = real(a, b, c, d, e, f, g, h, i, j);
    const tapedelay_tap_table * t = table_for(r);
    if (t && sched) {
        t->made(reinterpret_cast<void *>(sched), reinterpret_cast<void **>(a), reinterpret_cast<void **>(b), static_cast<int>(c), d,
                static_cast<uint8_t>(e) != 0, static_cast<uint8_t>(f) != 0);
    }
    return sched;
}

TAP word ggml_backend_sched_free(word a, word b, word c, word d, word e, word f) {
    route own;
    const route & r = find_route(CALLER, a, own);
    const auto real = reinterpret_cast<function_t>(r.real[TAPEDELAY_TAP_FREE]);
    if (!real) return nowhere(TAPEDELAY_TAP_FREE);
    const tapedelay_tap_table * t = table_for(r);
    if (t && a) t->gone(reinterpret_cast<void *>(a));
    return real(a, b, c, d, e, f);
}

TAP word ggml_backend_sched_set_tensor_backend(word a, word b, word c, word d, word e, word f) {
    route own;
    const route & r = find_route(CALLER, a, own);
    const auto real = reinterpret_cast<function_t>(r.real[TAPEDELAY_TAP_PIN]);
    if (!real) return nowhere(TAPEDELAY_TAP_PIN);
    const tapedelay_tap_table * t = table_for(r);
    if (t) t->pinned(reinterpret_cast<void *>(a), reinterpret_cast<void *>(b), reinterpret_cast<void *>(c));
    return real(a, b, c, d, e, f);
}

TAP word ggml_backend_sched_graph_compute(word a, word b, word c, word d, word e, word f) {
    return around(TAPEDELAY_TAP_COMPUTE, CALLER, a, b, c, d, e, f);
}

TAP word ggml_backend_sched_graph_compute_async(word a, word b, word c, word d, word e, word f) {
    return around(TAPEDELAY_TAP_COMPUTE_ASYNC, CALLER, a, b, c, d, e, f);
}

TAP word ggml_backend_sched_alloc_graph(word a, word b, word c, word d, word e, word f) {
    return around(TAPEDELAY_TAP_ALLOC, CALLER, a, b, c, d, e, f);
}

TAP word ggml_backend_sched_reset(word a, word b, word c, word d, word e, word f) {
    return around(TAPEDELAY_TAP_RESET, CALLER, a, b, c, d, e, f);
}
