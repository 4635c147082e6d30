// A native program that knows nothing of recording: it loads a prebuilt llama.cpp as its own tools do, decodes a
// prompt on one device and prints the tokens and the devices as a line of JSON.
//
// usage: llama_host LIBGGML LIBLLAMA BACKENDS MODEL DEVICE
//
// LIBGGML and LIBLLAMA are shared libraries, BACKENDS the folder of the backends; DEVICE is the name of a device, which
// gets all layers. ggml loads what GGML_BACKEND_PATH names with the others.
// Parameter structs change from build to build: they are passed as oversized blobs that the library fills with its
// defaults, which x86-64 (System V) hands over in memory whatever their size. What is set has stood in one place for
// years, or is found by the pattern of the defaults: devices, layers on them, tokens per ubatch, KV in host memory.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <vector>

#include <dlfcn.h>

namespace {

struct blob { unsigned char bytes[1024]; };

struct batch {   // llama_batch, unchanged since 2024
    int32_t n_tokens;
    int32_t * token;
    float * embd;
    int32_t * pos;
    int32_t * n_seq_id;
    int32_t ** seq_id;
    int8_t * logits;
};

void stop(const char * what, const char * which) {
    fprintf(stderr, "%s: %s\n", what, which ? which : "");
    exit(1);
}

struct library {
    explicit library(const char * path) : handle(dlopen(path, RTLD_NOW | RTLD_GLOBAL)) {
        if (!handle) stop("cannot load", dlerror());
    }
    template <class F>
    F * get(const char * name) const {
        void * f = dlsym(handle, name);
        if (!f) stop("no function", name);
        return reinterpret_cast<F *>(f);
    }
    void * handle;
};

// Where the pattern of some defaults stands.
template <size_t N>
unsigned char * found(blob & params, const unsigned char (&pattern)[N]) {
    auto * at = std::search(params.bytes, std::end(params.bytes), pattern, pattern + N);
    if (at == std::end(params.bytes)) stop("context parameters", "not as expected");
    return at;
}

constexpr int PROMPT = 40, PREDICTED = 4, DEVICES_AT = 0, LAYERS_AT = 16, UBATCH_AT = 8;
constexpr int32_t UBATCH = 16, ONE_THREAD[] = {1, 1};
const unsigned char THREADS[] = {4, 0, 0, 0, 4, 0, 0, 0};   // n_threads, n_threads_batch
const unsigned char SWITCHES[] = {0, 1, 1, 1, 1, 0};   // embeddings, offload_kqv, no_perf, op_offload, swa_full, kv_unified

}  // namespace

int main(int argc, char ** argv) {
    if (argc != 6) stop("usage", "llama_host LIBGGML LIBLLAMA BACKENDS MODEL DEVICE");
    const library ggml(argv[1]), llama(argv[2]);
    auto silent = [](int, const char *, void *) {};
    llama.get<void(void (*)(int, const char *, void *), void *)>("llama_log_set")(silent, nullptr);
    ggml.get<void(const char *)>("ggml_backend_load_all_from_path")(argv[3]);
    llama.get<void()>("llama_backend_init")();

    void * device = ggml.get<void *(const char *)>("ggml_backend_dev_by_name")(argv[5]);
    if (!device) stop("no device", argv[5]);
    void * chosen[] = {device, nullptr};
    blob params = llama.get<blob()>("llama_model_default_params")();
    void ** list = chosen;
    const int32_t layers = 99;
    memcpy(params.bytes + DEVICES_AT, &list, sizeof list);
    memcpy(params.bytes + LAYERS_AT, &layers, sizeof layers);
    void * model = llama.get<void *(const char *, blob)>("llama_model_load_from_file")(argv[4], params);
    if (!model) stop("the engine refused the model", argv[4]);
    params = llama.get<blob()>("llama_context_default_params")();
    memcpy(params.bytes + UBATCH_AT, &UBATCH, sizeof UBATCH);
    memcpy(found(params, THREADS), ONE_THREAD, sizeof ONE_THREAD);
    found(params, SWITCHES)[1] = 0;
    void * context = llama.get<void *(void *, blob)>("llama_init_from_model")(model, params);
    if (!context) stop("the engine refused the context", "");

    const void * vocabulary = llama.get<const void *(const void *)>("llama_model_get_vocab")(model);
    const int32_t words = llama.get<int32_t(const void *)>("llama_vocab_n_tokens")(vocabulary);
    auto * one = llama.get<batch(int32_t *, int32_t)>("llama_batch_get_one");
    auto * decode = llama.get<int32_t(void *, batch)>("llama_decode");
    auto * logits = llama.get<float *(void *, int32_t)>("llama_get_logits_ith");
    std::vector<int32_t> tokens;
    for (int i = 0; i < PROMPT; i++) tokens.push_back((i * 37 + 11) % (words < 512 ? words : 512));
    printf("{\"tokens\": [");
    for (int n = 0; n < PREDICTED; n++) {
        if (decode(context, one(tokens.data(), int32_t(tokens.size())))) stop("the engine failed to decode", "");
        const float * l = logits(context, -1);
        int32_t best = 0;
        for (int32_t k = 1; k < words; k++) if (l[k] > l[best]) best = k;
        printf("%s%d", n ? ", " : "", best);
        tokens.assign(1, best);
    }
    printf("], \"devices\": [");
    const size_t count = ggml.get<size_t()>("ggml_backend_dev_count")();
    for (size_t i = 0; i < count; i++) {
        void * each = ggml.get<void *(size_t)>("ggml_backend_dev_get")(i);
        printf("%s\"%s\"", i ? ", " : "", ggml.get<const char *(void *)>("ggml_backend_dev_name")(each));
    }
    printf("]}\n");
    llama.get<void(void *)>("llama_free")(context);
    llama.get<void(void *)>("llama_model_free")(model);
    return 0;
}
