#include "values.h"

namespace tapedelay {
namespace {

struct Recorder : Silent {
  std::vector<std::uint64_t>& digests;
  explicit Recorder(std::vector<std::uint64_t>& to) : digests(to) {}
  void read(const Use& use, std::uint64_t seen) {
    if (use.touch->judged()) digests.push_back(seen);
  }
};

std::uint64_t whole(const Scene& scene, const Store<ByBytes>& store, std::int32_t root) {
  return store.sum(root, 0, scene.cells.roots()[root].cells);
}

}  // namespace

Values::Values(const Contract& contract, const Buffers& buffers, const Order& order, const Pulse& pulse)
    : scene_(contract, buffers, order), pass_(scene_) {
  Recorder recorder(scene_.expected);
  Pass<Recorder> reference(scene_);
  reference.serial(recorder, pulse);
  const std::int32_t roots = std::int32_t(scene_.cells.roots().size());
  for (std::int32_t root = 0; root < roots; ++root) {
    scene_.at_end.push_back(whole(scene_, reference.store(), root));
    scene_.reads += scene_.lives.alive(root);
  }
}

std::int64_t Values::wrong(const Timing& timing, const Pulse& pulse) {
  Silent watch;
  std::int64_t found = pass_.timed(events_.sorted(scene_.codes, scene_.parts, timing), timing, watch, pulse);
  for (std::size_t root = 0; root < scene_.at_end.size(); ++root)
    found += scene_.lives.alive(std::int32_t(root)) &&
             whole(scene_, pass_.store(), std::int32_t(root)) != scene_.at_end[root];
  return found;
}

Story Values::story(const Timing& timing, std::int64_t wrong, std::size_t limit, const Pulse& pulse) {
  const bool all = wrong <= std::int64_t(limit);
  if (!all && !versions_) versions_ = std::make_unique<Versions>(reference_versions(scene_, pulse));
  return tell(scene_, events_.sorted(scene_.codes, scene_.parts, timing), timing, limit,
              all ? nullptr : versions_.get(), pulse);
}

}  // namespace tapedelay
