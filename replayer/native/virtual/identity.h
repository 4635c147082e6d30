// Who wrote what stands in memory, beside the values: ids of versions that do not depend on what the writer read.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "pass.h"

namespace tapedelay {

struct Version {
  Row writer;
  bool torn;
};

// An op's plain write is its row and place; what several ops made together (reduce, may_write, torn bytes) is a
// hash with the top bit, and a version in a table.
class Identity {
 public:
  explicit Identity(const Scene& scene) : scene_(scene), store_(scene.cells), seen_(scene.runs.size(), 0) {
    for (std::size_t i = 0; i < scene.cells.roots().size(); ++i) store_.fill(std::int32_t(i), 0);
  }

  void read(const Use& use) {
    const Touch& t = *use.touch;
    if (t.mode == Mode::may_write) seen_[use.unit] = fold(seen_[use.unit], digest(t));
  }

  void write(const Use& use) {
    const Touch& t = *use.touch;
    std::uint64_t id = (std::uint64_t(use.row) + 1) << kSeqBits | (use.seq & ((1U << kSeqBits) - 1));
    if (t.mode == Mode::may_write) {
      id = kMade | fold(seen_[use.unit], id);
      made_[id] = Version{use.row, false};
    }
    scene_.cells.each_range(t, [&](std::uint32_t begin, std::uint32_t end) {
      if (t.mode != Mode::reduce) {
        store_.set(t.root, begin, end, id);
        return;
      }
      const std::uint64_t more = mixed(id);
      store_.change(t.root, begin, end, [&](std::uint64_t was) {
        const Version before = version(was);
        const bool reduced = (was & kMade) && !before.torn;
        const std::uint64_t now = kMade | (was ^ more);
        made_[now] = Version{reduced ? std::max(before.writer, use.row) : use.row, before.torn};
        return now;
      });
    });
  }

  void torn(Row unit, Row other, std::int32_t root, std::uint32_t begin, std::uint32_t end) {
    const std::uint64_t id = kMade | torn_stamp(unit, other);
    made_[id] = Version{unit, true};
    store_.set(root, begin, end, id);
  }

  Version version(std::uint64_t id) const {
    if (!(id & kMade)) return {static_cast<Row>(id >> kSeqBits) - 1, false};
    return made_.find(id)->second;
  }
  std::uint64_t digest(const Touch& t) const {
    std::uint64_t found = 0;
    scene_.cells.each_range(t, [&](std::uint32_t b, std::uint32_t e) { found += store_.sum(t.root, b, e); });
    return found;
  }
  const Store<ByBytes>& store() const { return store_; }

 private:
  static constexpr int kSeqBits = 24;
  static constexpr std::uint64_t kMade = std::uint64_t{1} << 63;

  const Scene& scene_;
  Store<ByBytes> store_;
  std::vector<std::uint64_t> seen_;  // by unit: ids of the old content that it may keep
  std::unordered_map<std::uint64_t, Version> made_;
};

}  // namespace tapedelay
