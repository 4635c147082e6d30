// A tape for the native parts: its columns, edges, buffers and, when first asked for, its reference order.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "contract.h"
#include "ranges.h"
#include "tape.h"

namespace tapedelay {

class CoreTape {
 public:
  // `keep` owns what the columns point into. Throws `BadTape`.
  CoreTape(const Columns& from, std::string name, std::vector<std::shared_ptr<void>> keep = {})
      : where(std::move(name)), columns(from), contract(in_tape([&] { return Contract(from); })),
        buffers(in_tape([&] { return Buffers(from.buffers); })), keep_(std::move(keep)) {}
  CoreTape(const CoreTape&) = delete;
  CoreTape& operator=(const CoreTape&) = delete;

  const std::string where;  // for messages
  const Columns columns;
  const Contract contract;
  const Buffers buffers;

  const Order& order() const {
    std::call_once(once_, [this] { order_ = reference_order(contract); });
    return order_;
  }

  // Runs what may throw `BadTape`; the error says which tape it is about.
  template <class F>
  auto in_tape(F run) const -> decltype(run()) {
    try {
      return run();
    } catch (BadTape& e) {
      e.where = where;
      throw;
    }
  }

 private:
  std::vector<std::shared_ptr<void>> keep_;
  mutable std::once_flag once_;
  mutable Order order_;
};

}  // namespace tapedelay
