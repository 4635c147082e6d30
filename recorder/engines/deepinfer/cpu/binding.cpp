// The Python module `deepinfer._C` without CUDA: the request scheduler and nothing else of the engine.
//
// Beside the engine's own names (`_C.engine`) it has `_C.view`: what the engine's binding does not show and a
// recorder wants to see, the units that a request owns and the state of a pool. It only reads.
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <torch/extension.h>

#include "cuda_utils.hpp"
#include "engine/block_manager.hpp"
#include "engine/pybind.hpp"
#include "engine/sequence.hpp"

namespace deepinfer::cuda::utils {

// The two functions of the device that the scheduler's sources link to: a CPU has one stream and copies at once.
void cuda_copy_async(void *dst, void *src, size_t size, uint64_t /*stream*/) { std::memcpy(dst, src, size); }

uint64_t get_current_stream() { return 0; }

} // namespace deepinfer::cuda::utils

namespace {

// Units of the free list from its head. It stops after as many units as there are: a broken list may be a ring.
std::vector<int> free_units(const BlockManager &manager) {
    const auto &pool = manager.blocks;
    std::vector<int> units;
    for (int unit = pool._head; unit > 0 && unit < static_cast<int>(pool._blocks.size()); unit = pool._blocks[unit].next) {
        units.push_back(unit);
        if (units.size() >= pool._blocks.size()) {
            break;
        }
    }
    return units;
}

std::vector<std::pair<int, int>> references(const BlockManager &manager) {
    std::vector<std::pair<int, int>> counts;
    for (size_t unit = 0; unit < manager.blocks._blocks.size(); ++unit) {
        if (manager.blocks._blocks[unit].ref_count != 0) {
            counts.emplace_back(static_cast<int>(unit), manager.blocks._blocks[unit].ref_count);
        }
    }
    return counts;
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    pybind11::module engine = module.def_submodule("engine");
    deepinfer::engine::pymodule_init(engine);

    pybind11::module view = module.def_submodule("view");
    view.def("block_table", [](const Sequence &sequence) { return sequence.cache.block_table; });
    view.def("block_count", [](const SequenceMetadata &metadata) { return metadata.block_table.size(); });
    view.def("num_units", [](const BlockManager &manager) { return manager.num_blocks; });
    view.def("free_units", &free_units);
    view.def("references", &references);
}
