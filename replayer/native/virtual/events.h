// The order of events in virtual time: starts and ends by time, ties by the written rule (replayer/REPLAY.md).
#pragma once

#include <cstdint>
#include <vector>

#include "timing.h"

namespace tapedelay {

class Events {
 public:
  // `codes`: u where unit u starts, ~u where it ends, in the reference order; a unit without children ends as it
  // starts. `parts`: per row, whether the unit has children.
  const std::vector<std::int32_t>& sorted(const std::vector<std::int32_t>& codes,
                                          const std::vector<std::uint8_t>& parts, const Timing& timing);

 private:
  struct Item {
    std::uint64_t key;
    std::int32_t code;
  };
  std::vector<Item> items_, spare_;
  std::vector<std::int32_t> codes_;
};

}  // namespace tapedelay
