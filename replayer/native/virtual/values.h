// Values with identity (replayer/REPLAY.md): which reads of a run see something else than in the reference order.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "events.h"
#include "pass.h"
#include "story.h"

namespace tapedelay {

class Values {
 public:
  // Plays the reference once.
  Values(const Contract& contract, const Buffers& buffers, const Order& order, const Pulse& pulse);

  std::int64_t reads() const { return scene_.reads; }
  // How many facts the run with these times has.
  std::int64_t wrong(const Timing& timing, const Pulse& pulse);
  // What they are; `wrong` of them.
  Story story(const Timing& timing, std::int64_t wrong, std::size_t limit, const Pulse& pulse);

 private:
  Scene scene_;
  Events events_;
  Pass<Silent> pass_;
  std::unique_ptr<Versions> versions_;  // once a run had more facts than are told
};

}  // namespace tapedelay
