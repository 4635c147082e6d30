#include "host.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "hooks.h"
#include "platform_linux.h"

namespace td {

host_functions host;
int host_api = 0;

namespace {

constexpr int MAX_OBJECTS = 16;
constexpr const char * ANCHOR = "ggml_backend_buffer_init";   // tells an object that contains ggml

void * objects[MAX_OBJECTS];
int n_objects = 0;
const void * bound_base = nullptr;   // base address of the object that holds the anchor

const char * find_functions() {
#define TD_FIND(result, name, args)                                             \
    host.name = reinterpret_cast<result(*) args>(host_symbol(#name));           \
    if (!host.name) {                                                           \
        return #name;                                                           \
    }
    TD_HOST_FUNCTIONS(TD_FIND)
#undef TD_FIND
    return nullptr;
}

int find_api_version() {
    if (ggml_backend_dev_t cpu = host.ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU)) {
        return host.ggml_backend_dev_backend_reg(cpu)->api_version;
    }
    return host_symbol("ggml_backend_buft_alloc_buffer_n") ? 3 : 2;   // no CPU backend yet: plugins load in any order
}

// Builds a small graph with the host's own functions and looks whether everything lies where ggml_abi.h says.
// Returns what does not fit, null if all does.
const char * check_layouts() {
    constexpr size_t OBJECT_BYTES = 32;
    if (host.ggml_tensor_overhead() != OBJECT_BYTES + sizeof(ggml_tensor)) {
        return "ggml_tensor has another size";
    }
    const size_t room = 4 * host.ggml_tensor_overhead() + host.ggml_graph_overhead_custom(8, false) + 4096;
    ggml_context * context = host.ggml_init({room, nullptr, false});
    if (!context) {
        return "ggml_init failed";
    }
    const char * fault = nullptr;
    ggml_tensor * t = host.ggml_new_tensor_1d(context, GGML_TYPE_F32, 5);
    host.ggml_set_name(t, "td");
    ggml_cgraph * g = host.ggml_new_graph_custom(context, 8, false);
    host.ggml_graph_add_node(g, t);
    if (t->ne[0] != 5 || t->ne[3] != 1 || t->nb[0] != 4 || t->nb[1] != 20 || t->op != GGML_OP_NONE || !t->data) {
        fault = "ggml_tensor has another layout";
    } else if (host.ggml_get_name(t) != t->name || strcmp(t->name, "td") != 0) {
        fault = "ggml_tensor has its name elsewhere";
    } else if (g->n_nodes != 1 || g->size != 8 || !g->nodes || g->nodes[0] != t || g->visited_hash_set.size < 8) {
        fault = "ggml_cgraph has another layout";
    } else if (reinterpret_cast<char *>(g->nodes) != reinterpret_cast<char *>(g) + sizeof(ggml_cgraph)) {
        fault = "ggml_cgraph has another size";
    }
    host.ggml_free(context);
    if (fault) {
        return fault;
    }
    for (size_t i = 0, n = host.ggml_backend_dev_count(); i < n; i++) {
        ggml_backend_dev_t dev = host.ggml_backend_dev_get(i);
        if (dev->reg != host.ggml_backend_dev_backend_reg(dev)) {
            return "ggml_backend_device has another layout";
        }
        ggml_backend_buffer_type_t buft = dev->iface.get_buffer_type(dev);
        if (buft && buft_device(buft) != host.ggml_backend_buft_get_device(buft)) {
            return "ggml_backend_buffer_type has another layout";
        }
    }
    return nullptr;
}

}  // namespace

void say(const char * format, ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fprintf(stderr, "tapedelay: %s\n", line);
}

void refuse(const char * format, ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    say("refused: %s", line);
    leave_word(line);
}

void leave_word(const char * line) {
    const char * spool = getenv("TAPEDELAY_SPOOL");
    char path[4096];
    if (!spool || !*spool || snprintf(path, sizeof path, "%s/refused-%u.txt", spool, platform::process_id()) >= int(sizeof path)) {
        return;
    }
    const int fd = platform::file_create(path);
    if (fd >= 0) {
        platform::file_append(fd, line, strlen(line));
        platform::file_close(fd);
    }
}

void * host_symbol(const char * name) {
    for (int i = 0; i < n_objects; i++) {
        if (void * at = platform::symbol_in(objects[i], name)) {
            return at;
        }
    }
    return nullptr;
}

bool host_bind(void * caller) {
    void * found[MAX_OBJECTS];
    const int n = platform::objects_with(ANCHOR, caller, found, MAX_OBJECTS);
    const void * base = n ? platform::object_of(platform::symbol_in(found[0], ANCHOR)) : nullptr;
    if (bound_base) {
        if (base != bound_base) {
            refuse("this process contains a second copy of ggml; only the first that loaded the plugin is served");
        }
        return base == bound_base;
    }
    if (!base) {
        refuse("no loaded library exports %s (a ggml that is linked in statically cannot be served)", ANCHOR);
        return false;
    }
    n_objects = 0;
    for (int i = 0; i < n; i++) {   // objects that see another copy must not complete this one
        if (platform::symbol_in(found[i], ANCHOR) == platform::symbol_in(found[0], ANCHOR)) {
            objects[n_objects++] = found[i];
        }
    }
    internal_scope quiet;
    if (const char * missing = find_functions()) {
        refuse("this ggml has no %s", missing);
        return false;
    }
    host_api = find_api_version();
    if (host_api != 2 && host_api != 3) {
        refuse("this ggml has backend API version %d, versions 2 and 3 are supported", host_api);
        return false;
    }
    if (const char * fault = check_layouts()) {
        refuse("this ggml does not fit (%s)", fault);
        return false;
    }
    bound_base = base;
    return true;
}

ggml_backend_dev_t host_cpu() { return host.ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU); }

}  // namespace td
