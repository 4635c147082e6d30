// What ops do to the memory as they start and end, and what is wrong with what they see.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "family.h"
#include "memory.h"
#include "spec.h"

namespace tapedelay::threads {

enum class Fault : std::int8_t { stale, torn, freed, destroyed };  // order of WRONG_KINDS

// A read that saw something else than in the reference order, or a use of what was not there.
struct Wrong {
  Row row;              // -1: the host's read at the end
  std::int64_t access;  // -1: none; for the read at the end its number
  Fault fault;
  bool late;            // found as the op ended: it became a fact between its start and its end
  Row by;               // unit that ended the life of what the op uses; -1
  std::int64_t at_ns;
  std::int64_t event;   // place among all starts and ends of the run
  std::vector<Run> saw;
};

// All of them are counted; the first are kept, and of the first of those what they saw.
struct Found {
  std::vector<Wrong> kept;
  std::int64_t count = 0;

  bool full() const { return kept.size() >= 20'000; }
  bool looks() const { return kept.size() < 1'000; }
  void add(Wrong wrong) {
    ++count;
    if (!full()) kept.push_back(std::move(wrong));
  }
};

// Where an op starts or ends.
struct Moment {
  std::int64_t ns, event;
  bool instant;  // it ends as it starts: nothing comes between
};

// The memory and the state of the units in it; units that run at once may be on several threads.
class Oracle {
 public:
  explicit Oracle(const Spec& spec);

  // Runs the reference order, and remembers what each read sees.
  void learn();
  // The same again for what reads saw: by access, and by number of the read at the end.
  using Look = std::function<std::vector<Run>()>;
  using See = std::function<void(std::int64_t, const Look&)>;
  void explain(const See& read, const See& last);

  void reset();  // before a run
  void start(Row unit, const Moment& at, Found& found);
  void end(Row unit, const Moment& at, Found& found);
  void last_reads(const Moment& at, Found& found);

  bool judged(std::int64_t access) const {
    return spec_.mode[access] == Mode::read || spec_.mode[access] == Mode::update;
  }
  Word wrote(std::int64_t access) const { return wrote_[access]; }          // in the last run
  Word reference(std::int64_t access) const { return reference_[access]; }  // in the reference order
  std::int64_t reads() const { return reads_; }                             // that are judged

 private:
  enum class Pass : std::int8_t { learn, explain, run };
  // Of an access: the unit writes in it; in this run it has seen a wrong value; its memory was not there.
  enum Flag : std::uint8_t { kOwn = 1, kBadValue = 2, kBadMemory = 4 };

  // A unit that writes some bytes several times: its bytes, each once.
  struct Tangle {
    std::vector<Range> writes;
    std::vector<std::vector<Range>> reduces;  // without those; by access that reduces
  };

  void find_tangles();
  void play(Pass pass);
  void start(Row unit, const Moment& at, Pass pass, Found& found);
  void end(Row unit, const Moment& at, Pass pass, Found& found);
  void read(Row row, const Moment& at, Pass pass, Found& found);
  void torn(Row unit, std::int64_t access, bool late, const Moment& at, Found& found);
  void use(Row unit, bool late, const Moment& at, Found& found);
  void mark(Row unit);
  void again(Row unit, const Moment& at, Found& found);
  void copy(Row row, Row unit, bool instant, const Moment& at, Found& found);
  bool clean(Range range, Row unit, bool instant) const;
  void write(Row unit, bool instant);
  Word digest(std::int64_t access) const;
  std::vector<Run> look(std::int64_t access, const Found& found) const;
  bool ended(Row unit) const { return ended_[unit].load(std::memory_order_acquire) != 0; }
  const Tangle* tangle(Row unit) const;
  // Calls f(row, access) for each access of a unit, in their order.
  template <class F>
  void each(Row unit, F f) const {
    for (const Row row : spec_.rows_of(unit))
      for (std::int64_t a = spec_.access_first[row]; a < spec_.access_first[row + 1]; ++a) f(row, a);
  }

  const Spec& spec_;
  Memory memory_;
  Family family_;
  std::vector<Word> expected_;  // digest of each judged read in the reference order
  std::vector<Word> seen_;      // digest of each read as its op had started
  std::vector<Word> wrote_, reference_;
  std::vector<Word> folded_;    // per unit: digest of all that it read
  std::vector<Word> last_;      // digests of the reads at the end
  std::vector<std::uint8_t> flags_;
  std::vector<std::uint8_t> told_;  // per entry of `destroys`: reported in this run
  std::vector<std::atomic<std::uint8_t>> ended_;
  std::unordered_map<Row, Tangle> tangles_;
  std::int64_t reads_ = 0;
  See explain_;
};

}  // namespace tapedelay::threads
