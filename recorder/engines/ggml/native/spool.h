// The spool: what an engine process writes. Shared by the plugin (writer) and described for the collector
// (recorder/engines/ggml/layout.py) by the static asserts below; a test compares the two.
//
// One directory, given by TAPEDELAY_SPOOL. Each process writes two files (STEM = "<pid>-<start_ns>"):
//   STEM.rec   64-byte header, then 64-byte records in preallocated, memory-mapped segments
//   STEM.def   append-only frames: u32 payload bytes, u32 CRC-32 (zlib) of type + payload, u32 type, payload
// A flight recorder (only the newest records are kept) writes more files, of one segment each:
//   STEM.K.part  segment K > 0; segment 0 is STEM.rec. The byte of a slot counts through all of them
//   STEM.ring    which slots were dropped: a page with ring_header, then two ring_windows, of which number
//                `current & 1` holds. Records of dropped slots may still be there: they are not to be read
// Little endian. A record counts once its `commit` equals COMMIT ^ low 32 bits of its slot number; it is stored
// last, with release order. A definition is always written before the first record that names it.
#pragma once
#include <cstddef>
#include <cstdint>

namespace td {

constexpr uint64_t SPOOL_MAGIC   = 0x304c4f4f50534454ull;  // "TDSPOOL0"
constexpr uint32_t SPOOL_VERSION = 0;
constexpr uint32_t COMMIT        = 0x7ad0c0deu;
constexpr uint32_t NONE          = 0xffffffffu;
constexpr uint16_t NO_QUEUE      = 0xffff;

struct spool_header {          // offset 0 of STEM.rec
    uint64_t magic;
    uint32_t version;
    uint32_t record_bytes;     // 64
    uint64_t mono_ns;          // CLOCK_MONOTONIC at start ...
    uint64_t wall_ns;          // ... and CLOCK_REALTIME at the same moment
    uint32_t pid;
    uint32_t flags;            // HDR_*
    uint64_t lost;             // records that found no room (counted, never waited for)
    uint64_t boot;             // tells boots of machines apart: of processes with one number the monotonic clocks agree; 0 = not known
    uint32_t why, error;       // HDR_FAILED: STOP_* and errno of what went wrong first
};
static_assert(sizeof(spool_header) == 64, "");

struct ring_header {           // offset 0 of STEM.ring
    uint64_t magic;
    uint64_t segment_bytes;
    uint64_t records, ns;      // asked for: so many newest records, or those of the last ns; the other one is 0
    uint64_t current;          // number of the window that holds; changed last
    uint64_t reserved[3];
};
static_assert(sizeof(ring_header) == 64, "");
struct ring_window {           // offset 4096 + (number & 1) * RING_WINDOW_BYTES
    uint64_t first_slot;       // older slots are dropped, but for these:
    uint64_t dropped;          // records dropped (marks of gaps do not count)
    uint64_t lost;             // what the dropped marks of gaps say
    uint64_t kept;             // so many chunk numbers follow, u64: chunk C holds slots 64 C - 1 to 64 C + 62
};
constexpr uint64_t RING_MAGIC        = 0x30474e4952445444ull;  // "DTDRING0"
constexpr uint64_t RING_WINDOW_BYTES = 1 << 20;

enum : uint32_t { HDR_ENDED = 1, HDR_FAILED = 2 };   // ended cleanly; recording stopped early (disk, limits)
enum : uint32_t { STOP_RECORDS = 1, STOP_DEFINITIONS, STOP_FILE, STOP_MEMORY, STOP_THREAD, STOP_FORK };

// Slots are handed out in chunks per thread: a slot whose commit word does not fit is a hole, not an error (a call
// that was declined leaves one too). Issue order of a process = order of (issue_ns, slot).
// A blocking call is committed when it is issued and gets its end_ns when it returns: end_ns 0 in a call that has
// one means that it had not returned when the process ended (a deadlock, a kill).
// A forked child writes its own pair of files, made at its first record; its STEM.def starts with a copy of the
// parent's definitions, so ids of both mean the same objects up to the fork. D_PROCESS stands there once.
// THREADs that only write K_EXEC and K_DELAY are workers of the plugin, not host threads of the engine.
struct record {
    uint64_t issue_ns;         // CLOCK_MONOTONIC when the host called
    uint64_t end_ns;           // when the call returned, for calls that block or work on the host; else 0
    uint64_t a, b, c;          // by kind
    uint32_t d, e;             // by kind
    uint32_t name;             // NAME id or NONE
    uint32_t thread;           // THREAD ordinal
    uint16_t queue;            // QUEUE id (a backend object), NO_QUEUE: a buffer or device call
    uint8_t  kind;             // kind_t
    uint8_t  flags;            // F_*
    uint32_t commit;
};
static_assert(sizeof(record) == 64, "");
static_assert(offsetof(record, commit) == 60, "");

enum kind_t : uint8_t {
    K_NONE = 0,
    K_COMPUTE,        // a = graph uid (0 = none), b = ordinal of the call on this queue, d = SET id, e = nodes
                      // F_META: d = NONE, the accesses are its children's
    K_COPY,           // buffer or async copy: d/e = source/destination buffer (NONE = anonymous), a/b = offsets, c = bytes
    K_SET,            // host memory -> tensor: as K_COPY (d = NONE unless the pointer lies in a known buffer).
                      // An asynchronous call that reads a known source before it returns: two records, first the
                      // reading (F_HOST, e = NONE: staging memory), then the queue's part (d = NONE).
                      // F_META: d = NONE, its children name the source
    K_GET,            // tensor -> host memory: as K_COPY
    K_MEMSET,         // e = buffer, b = offset, c = bytes
    K_CLEAR,          // e = buffer, whole
    K_EVENT_RECORD,   // d = EVENT id, a = generation of the event after this record
    K_EVENT_WAIT,     // d = EVENT id, a = generation waited for (0 = never recorded; of an event that was seen late: not
                      // since then); flags F_FOREIGN
    K_EVENT_SYNC,     // host waits: as K_EVENT_WAIT, end_ns set
    K_SYNC,           // host waits for `queue`, end_ns set
    K_BUFFER_ALLOC,   // e = buffer
    K_BUFFER_FREE,    // e = buffer
    K_EVENT_FREE,     // d = EVENT id
    K_QUEUE_INIT,     // queue made
    K_QUEUE_FREE,     // queue destroyed
    K_EXEC,           // written by a test device's worker: a = slot of the issue record, issue_ns/end_ns = start/end
    K_SPLIT_COPY_WAIT,// destination queue waits for a copy that runs on another queue: a = slot of the K_COPY record
    K_DELAY,          // a delay of the plan was applied: a = slot of the issue record of the op, issue_ns/end_ns = when it
                      // began and ended (filler: when it was enqueued), b = ns asked for, c = true ns (filler: as
                      // calibrated), d = line of the plan, e = place (0 before_issue, 1 before_start, 2 after_end) + FILLER
    K_GAP,            // records of this thread found no room: a = how many, issue_ns/end_ns = from, to. Gaps of threads that
                      // recorded nothing afterwards have no mark, but count in `lost`
    K_SCHED_COMPUTE,  // the scheduler was given a graph: a = graph uid, b = ordinal of the call in the process (the step),
                      // c = splits of it, right once end_ns is set, d = GRAPH id or NONE, e = SCHED id; end_ns set
    K_SCHED_ALLOC,    // ... to allocate: a = graph uid, d = GRAPH id or NONE, e = SCHED id; end_ns set
    K_SCHED_RESET,    // e = SCHED id; end_ns set
};
enum : uint8_t {
    F_HOST     = 1,   // executed by the calling thread before the call returned
    F_FOREIGN  = 2,   // the event belongs to a backend that this one does not understand
    F_FAILED   = 4,   // the call returned an error: a compute may have done a part, anything else did nothing
    F_META     = 8,   // call on a meta device; its simple backends' records follow with F_CHILD
    F_CHILD    = 16,  // issued by a meta device's call (the newest F_META record of the same thread)
    F_SPAN     = 32,  // strided copy (2d, or a tensor with gaps): `bytes` is the hull, over-approximated
};

// Definitions. str = u32 length + bytes (UTF-8, may be cut); all ids count from 0 in order of definition.
enum def_t : uint32_t {
    D_PROCESS = 1,    // u32 api_version, str engine ("ggml"), str build (host library version or ""), u32 plugin version
    D_THREAD,         // u32 ordinal
    D_DEVICE,         // u32 id, u32 type (ggml_backend_dev_type), u32 is_test, u32 caps bits (1 async, 2 events, 4 host_buffer), str name, str description, str reg, str profile, str PCI bus id ("" = not told)
    D_QUEUE,          // u32 id, u32 device, u32 async (has synchronize, or is a test device), str name
                      // An id that comes again replaces the earlier frame (weights usage is known after allocation only).
    D_BUFFER,         // u32 id, u32 device (NONE = none), u32 flags (1 host, 2 weights usage, 4 seen late: allocated before the recorder), u64 bytes, u64 base, str buffer type name
    D_EVENT,          // u32 id, u32 device, u32 flags (1 seen late: perhaps recorded before the recorder came)
    D_NAME,           // u32 id, str
    D_SET,            // u32 id, u32 n, then n x access
    D_SWITCH,         // str name, str word: debugging switches of the engine, as a known word
    D_NOTE,           // str: something the plugin has to say (refused device, lost coverage)
    D_GRAPH,          // a graph as the scheduler received it, once per identity: u32 id, u32 SCHED id (the first that had it),
                      // u32 nodes, u32 leafs, then a graph_node for each node and leaf
    D_SCHED,          // u32 id, u32 flags (1 parallel, 2 may offload ops, 4 seen late: these two are not known), u32 copies,
                      // u32 backends, then for each u32 QUEUE id or NONE, u32 DEVICE id or NONE, str buffer type name
    D_FILLER,         // how queues of a device are held up: u32 device, u32 by (0 matrix products, 1 an op that sleeps), u64 ns of
                      // the shortest and u64 ns of the longest piece, then of one filler tried: u64 ns asked for, u64 ns it took
    D_TAP,            // u32 version: the tap is in the process and told us
};
struct access {
    uint32_t buffer;      // BUFFER id or NONE
    uint32_t name;        // NAME id
    uint64_t offset;      // bytes from the buffer's base
    uint64_t bytes;
    uint8_t  mode;        // 0 read, 1 write, 2 update, 3 may_write, 4 reduce
    uint8_t  flags;       // 1 = leaf flagged INPUT by the engine, 2 = leaf, 4 = over-approximated: span of a strided view, or rows picked by index
    uint16_t reserved;
    uint32_t node;        // index of the node in the graph
};
static_assert(sizeof(access) == 32, "");
enum : uint8_t { NO_BUFFER = 0xff };
struct graph_node {
    int64_t  shape[4];
    uint64_t strides[4];
    uint64_t view_offset;
    int32_t  sources[10];     // index in the graph, -1 outside, -2 none
    int32_t  view_source;     // likewise
    uint32_t name, op, type;  // NAME ids (or NONE)
    int32_t  flags;           // as the engine has them: 1 input, 2 output, 4 parameter, ...
    uint32_t buffer_device;   // DEVICE id of its buffer's type, or NONE
    uint32_t user_device;     // DEVICE id of the backend the user pinned it to, or NONE
    int32_t  op_params[16];   // zero where they hold pointers (has_params 0)
    uint8_t  usage;           // ggml_backend_buffer_usage, NO_BUFFER = not allocated yet
    uint8_t  host;            // its buffer is host memory
    uint8_t  has_params;
    uint8_t  reserved[9];
};
static_assert(sizeof(graph_node) == 216, "");
static_assert(offsetof(graph_node, name) == 116 && offsetof(graph_node, usage) == 204, "");

}  // namespace td
