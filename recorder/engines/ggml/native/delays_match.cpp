// Which delays apply to an op: counted as it is issued, by kind, name and queue as a recording shows them.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "delay_plan.hpp"
#include "delays.hpp"
#include "graph_set.hpp"
#include "host.h"
#include "memory.h"
#include "platform_linux.h"

namespace td {

namespace {

constexpr uint32_t HOST_QUEUE = 1u << 24;       // + number of the host thread; below: id of a backend's queue
constexpr uint32_t MAYBE = 1u << 31;            // depends on the ordinal in the name of a computation
constexpr size_t MAX_KNOWN = 1 << 20, MAX_ON_THE_WAY = 1 << 20;

// Which anchors fit ops of one kind, name, queue and set.
struct fitting {
    uint32_t kind, queue, name, set, count;
    uint32_t anchors[];
};
struct table { size_t mask, used; std::atomic<const fitting *> * cells; };

struct queue_names { std::string name, device; bool async = false; };

// An op that a line with +K goes on from: due at this op of its queue.
struct queue_count {
    uint64_t seen = 0;
    std::multimap<uint64_t, uint32_t> due;   // -> entry
};

struct state_t {
    plan_file plan;
    std::atomic<uint64_t> * seen = nullptr;          // ops that each anchor fits
    std::atomic<uint64_t> ops{0};                    // issued by this process
    std::atomic<uint64_t> computes[256] = {};        // by device; the host's are together
    std::atomic<const table *> known{nullptr};
    bool touching = false, further = false;
    uint32_t process = 0;
    bool numbered = false;
    std::map<std::string, uint32_t> used_names;
    std::vector<queue_names> queues;
    std::string host_device;
    std::mutex on_the_way;
    std::map<uint32_t, queue_count> counts;
    size_t n_on_the_way = 0;
    bool said_full = false;
};

state_t & S() {
    static state_t * s = new state_t;   // never destroyed: engines compute in exit handlers
    return *s;
}

// SplitMix64, as formats/delays/randoms.py.
uint64_t mix(uint64_t z) {
    z += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

size_t hash(uint32_t kind, uint32_t queue, uint32_t name, uint32_t set) {
    return static_cast<size_t>(mix((uint64_t(kind) << 32 | queue) ^ mix(uint64_t(name) << 32 | set)));
}

const fitting * find(const table * t, uint32_t kind, uint32_t queue, uint32_t name, uint32_t set) {
    if (!t) return nullptr;
    for (size_t i = hash(kind, queue, name, set);; i++) {
        const fitting * f = t->cells[i & t->mask].load(std::memory_order_acquire);
        if (!f) return nullptr;
        if (f->kind == kind && f->queue == queue && f->name == name && f->set == set) return f;
    }
}

void put(const table * t, const fitting * f) {
    for (size_t i = hash(f->kind, f->queue, f->name, f->set);; i++) {
        std::atomic<const fitting *> & c = t->cells[i & t->mask];
        if (c.load()) continue;
        c.store(f, std::memory_order_release);
        return;
    }
}

// The names that a recording gives: the second queue TAPE0 is TAPE0.2, those of process 1 begin with `p1.`.
std::string fresh(std::map<std::string, uint32_t> & used, const std::string & name) {
    const uint32_t n = ++used[name];
    return n == 1 ? name : fresh(used, name + "." + std::to_string(n));
}

std::string prefix() {
    state_t & s = S();
    if (!s.numbered) {
        s.process = s.plan.counts->processes.fetch_add(1);
        s.numbered = true;
    }
    return s.process ? "p" + std::to_string(s.process) + "." : "";
}

size_t ordinal_bytes(const char * name) {
    if (*name != '#' || name[1] < '0' || name[1] > '9') return 0;
    size_t n = 1;
    while (name[n] >= '0' && name[n] <= '9') n++;
    return name[n] == ' ' ? n + 1 : 0;
}

bool name_fits(uint32_t glob, const char * name) {
    if (glob_matches(S().plan.tokens + glob, name)) return true;
    const size_t skip = ordinal_bytes(name);
    return skip && glob_matches(S().plan.tokens + glob, name + skip);
}

bool on_fits(const plan_anchor & a, uint32_t queue) {
    if (a.on == NONE) return true;
    state_t & s = S();
    const uint32_t * glob = s.plan.tokens + a.on;
    std::string name, device = s.host_device;
    if (queue & HOST_QUEUE) {
        name = "host" + std::to_string(queue & (HOST_QUEUE - 1));
    } else if (queue < s.queues.size()) {
        name = s.queues[queue].name;
        device = s.queues[queue].device;
    }
    return glob_matches(glob, (prefix() + name).c_str()) || glob_matches(glob, (prefix() + device).c_str());
}

bool touches(const plan_anchor & a, uint32_t set) {
    if (a.touching == NONE) return true;
    if (set == NONE) return false;
    for (uint32_t name : set_names(set))
        if (name != NONE && glob_matches(S().plan.tokens + a.touching, name_text(name))) return true;
    return false;
}

// 0 = does not fit, 1 = fits, MAYBE
uint32_t fits(const plan_anchor & a, uint32_t kind, uint32_t queue, uint32_t name, uint32_t set) {
    if (!(a.kinds >> kind & 1) || !on_fits(a, queue) || !touches(a, set)) return 0;
    if (a.of == NONE) return 1;
    if (kind == OP_COMPUTE) {   // called "#<ordinal> <first tensor that it writes>"
        if (name != NONE && glob_matches(S().plan.tokens + a.of, name_text(name))) return 1;
        return glob_may_begin_with_ordinal(S().plan.tokens + a.of) ? MAYBE : 0;
    }
    if (kind == OP_MARK) return glob_matches(S().plan.tokens + a.of, "queue freed");
    return name != NONE && name_fits(a.of, name_text(name));
}

// First op of its kind. `own` is set where it is not kept, and then to be freed.
const fitting * look(uint32_t kind, uint32_t queue, uint32_t name, uint32_t set, bool & own) {
    state_t & s = S();
    std::lock_guard<std::recursive_mutex> guard(slow_path());
    const table * t = s.known.load();
    if (const fitting * f = find(t, kind, queue, name, set)) return f;
    std::vector<uint32_t> anchors;
    for (uint32_t i = 0; i < s.plan.header->anchors; i++)
        if (uint32_t how = fits(s.plan.anchors[i], kind, queue, name, set)) anchors.push_back(i | (how & MAYBE));
    auto * f = static_cast<fitting *>(try_alloc(sizeof(fitting) + anchors.size() * sizeof(uint32_t)));
    if (!f) return nullptr;
    f->kind = kind; f->queue = queue; f->name = name; f->set = set;
    f->count = static_cast<uint32_t>(anchors.size());
    for (size_t i = 0; i < anchors.size(); i++) f->anchors[i] = anchors[i];
    own = t && t->used >= MAX_KNOWN;
    if (own) return f;
    if (!t || (t->used + 1) * 2 > t->mask) {
        size_t size = t ? (t->mask + 1) * 4 : 1024;
        auto * cells = static_cast<std::atomic<const fitting *> *>(try_zeroed(size, sizeof(std::atomic<const fitting *>)));
        auto * bigger = static_cast<table *>(try_alloc(sizeof(table)));
        if (!cells || !bigger) { free(cells); free(bigger); own = true; return f; }
        *bigger = {size - 1, t ? t->used : 0, cells};
        for (size_t i = 0; t && i <= t->mask; i++) if (const fitting * old = t->cells[i].load()) put(bigger, old);
        s.known.store(bigger, std::memory_order_release);   // the outgrown one stays: somebody may be reading it
        t = bigger;
    }
    put(t, f);
    const_cast<table *>(t)->used++;
    return f;
}

// A computation's whole name is told only when the name of an anchor may hold its ordinal.
bool whole_name_fits(uint32_t glob, uint32_t name, uint64_t ordinal) {
    char whole[32 + 4 * GGML_MAX_NAME];
    snprintf(whole, sizeof whole, name == NONE ? "#%llu" : "#%llu %s", static_cast<unsigned long long>(ordinal), name == NONE ? "" : name_text(name));
    return glob_matches(S().plan.tokens + glob, whole);
}

void apply(const plan_entry & e, uint64_t op, delay_match & out) {
    const uint64_t ns = e.random ? mix(mix(e.seed) + op) % (e.ns + 1) : e.ns;
    for (uint32_t i = out.count; out.count >= delay_match::OWN_PARTS && i-- > 0;) {
        if (out.parts[i].place != e.place) continue;
        out.parts[i].ns += ns;
        S().plan.lines[e.line].applied.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    out.parts[out.count++] = {ns, 0, 0, e.line, static_cast<delay_place>(e.place)};
}

// The op is one of those that the entry means, or goes on from.
void meant(uint32_t at, uint32_t queue, uint64_t op, delay_match & out) {
    state_t & s = S();
    const plan_entry & e = s.plan.entries[at];
    if (!e.further) return apply(e, op, out);
    if (s.n_on_the_way >= MAX_ON_THE_WAY) {
        if (!s.said_full) say("delays: more than %zu ops that lines with +K go on from; further ones are left out", MAX_ON_THE_WAY);
        s.said_full = true;
        return;
    }
    queue_count & q = s.counts[queue];
    q.due.emplace(q.seen + e.further, at);
    s.n_on_the_way++;
}

void met(const plan_anchor & a, uint64_t nth, uint32_t queue, uint64_t op, delay_match & out) {
    const plan_entry * entries = S().plan.entries;
    uint32_t low = a.first, high = a.first + a.count;
    for (; low < high && !entries[low].nth; low++) meant(low, queue, op, out);
    while (low < high) {   // the first with that number
        const uint32_t middle = low + (high - low) / 2;
        if (entries[middle].nth < nth) low = middle + 1; else high = middle;
    }
    for (; low < a.first + a.count && entries[low].nth == nth; low++) meant(low, queue, op, out);
}

void in_child() {
    state_t & s = S();
    for (uint32_t i = 0; i < s.plan.header->anchors; i++) s.seen[i].store(0);
    for (auto & c : s.computes) c.store(0);
    s.ops.store(0);
    s.known.store(nullptr);   // its names begin with another number
    s.numbered = false;
    new (&s.on_the_way) std::mutex;
    new (&s.counts) std::map<uint32_t, queue_count>;   // another thread may have been in it
    s.n_on_the_way = 0;
}

uint32_t queue_of(const queue_info * q) {
    if (q && q->async) return q->id;
    return HOST_QUEUE | spool_host_number();
}

uint64_t count_compute(const queue_info * q) {
    const bool host = !q || q->device->host_memory;
    return S().computes[host ? 255 : q->device->id % 255].fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

const plan_file & delays_plan() { return S().plan; }

bool delays_open(const char * path) {
    state_t & s = S();
    if (const char * wrong = plan_open(path, s.plan)) {
        std::string text = std::string("no delays: the plan that record compiled cannot be used: ") + wrong;
        say("%s", text.c_str());
        define(D_NOTE, blob().str(text.c_str()));
        return false;
    }
    s.seen = static_cast<std::atomic<uint64_t> *>(try_zeroed(s.plan.header->anchors + 1, sizeof(std::atomic<uint64_t>)));
    if (!s.seen) return false;
    for (uint32_t i = 0; i < s.plan.header->anchors; i++) s.touching = s.touching || s.plan.anchors[i].touching != NONE;
    for (uint32_t i = 0; i < s.plan.header->entries; i++) s.further = s.further || s.plan.entries[i].further;
    if (ggml_backend_dev_t cpu = host_cpu()) s.host_device = cpu->iface.get_name(cpu);
    if (s.host_device.empty()) s.host_device = "host";
    prefix();
    platform::at_fork(nullptr, nullptr, in_child);
    return true;
}

bool delays_want_sets() { return delays_on && S().touching; }

void delays_queue(uint16_t id, bool async, const char * name, ggml_backend_dev_t dev) {
    if (!delays_on) return;
    state_t & s = S();
    const device_info * d = devices.find(dev);
    const std::string device = d && !d->host_memory ? shown_name(dev->iface.get_name(dev)) : s.host_device;
    if (s.queues.size() <= id) s.queues.resize(id + size_t(1));
    s.queues[id] = {async ? fresh(s.used_names, name) : std::string(), device, async};
}

bool delays_aim_at(uint16_t queue) {
    if (!delays_on) return false;
    std::lock_guard<std::recursive_mutex> guard(slow_path());
    const plan_file & p = S().plan;
    for (uint32_t i = 0; i < p.header->anchors; i++) {
        const plan_anchor & a = p.anchors[i];
        if (!on_fits(a, queue)) continue;
        for (uint32_t k = a.first; k < a.first + a.count; k++) if (p.entries[k].place != BEFORE_ISSUE) return true;
    }
    return false;
}

void delays_find(op_kind kind, const queue_info * q, uint32_t name, uint32_t set, delay_match & out) {
    state_t & s = S();
    out.count = 0;
    const uint32_t queue = queue_of(q);
    const uint64_t op = s.ops.fetch_add(1, std::memory_order_relaxed);
    const uint64_t ordinal = kind == OP_COMPUTE ? count_compute(q) : 0;
    if (!s.touching) set = NONE;
    bool own = false;
    const fitting * f = find(s.known.load(std::memory_order_acquire), kind, queue, name, set);
    if (!f) f = look(kind, queue, name, set, own);
    std::unique_lock<std::mutex> lock(s.on_the_way, std::defer_lock);
    if (s.further) {
        lock.lock();
        queue_count & c = s.counts[queue];
        c.seen++;
        while (!c.due.empty() && c.due.begin()->first <= c.seen) {
            apply(s.plan.entries[c.due.begin()->second], op, out);
            c.due.erase(c.due.begin());
            s.n_on_the_way--;
        }
    }
    for (uint32_t i = 0; f && i < f->count; i++) {
        const uint32_t at = f->anchors[i] & ~MAYBE;
        const plan_anchor & a = s.plan.anchors[at];
        if ((f->anchors[i] & MAYBE) && !whole_name_fits(a.of, name, ordinal)) continue;
        met(a, s.seen[at].fetch_add(1, std::memory_order_relaxed) + 1, queue, op, out);
    }
    if (own) free(const_cast<fitting *>(f));
}

void delays_skip(op_kind kind, const queue_info * queue, uint32_t name) {
    delay_match out;
    delays_find(kind, queue, name, NONE, out);
    for (uint32_t i = 0; i < out.count; i++) S().plan.lines[out.parts[i].line].missed.fetch_add(1, std::memory_order_relaxed);
}

void delays_take_back(op_kind kind, const queue_info * q, uint32_t name) {
    state_t & s = S();
    const uint32_t queue = queue_of(q);
    s.ops.fetch_sub(1, std::memory_order_relaxed);
    bool own = false;
    const fitting * f = look(kind, queue, name, NONE, own);
    for (uint32_t i = 0; f && i < f->count; i++) s.seen[f->anchors[i] & ~MAYBE].fetch_sub(1, std::memory_order_relaxed);
    if (own) free(const_cast<fitting *>(f));
    if (s.further) {
        std::lock_guard<std::mutex> lock(s.on_the_way);
        s.counts[queue].seen--;
    }
}

}  // namespace td
