// Buffers and access sets on physical bytes: the rules of formats/SPEC.md section 4.
#include "ranges.h"

#include <algorithm>

namespace tapedelay {

namespace {

constexpr int kMaxBufferDepth = 64;  // formats/limits.py

std::string str(std::int64_t value) { return std::to_string(value); }

// a + b * c, or false where it does not fit.
bool sum(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t& out) {
  std::int64_t product = 0;
  return !__builtin_mul_overflow(b, c, &product) && !__builtin_add_overflow(a, product, &out);
}

}  // namespace

Buffers::Buffers(const BufferColumns& columns) : columns_(columns) {
  const std::int64_t rows = columns.rows;
  root_.resize(std::size_t(rows)), offset_.resize(std::size_t(rows));
  std::vector<std::uint8_t> depth(std::size_t(rows), 0);
  std::unordered_map<std::int64_t, std::int32_t> keyed;
  for (std::int32_t b = 0; b < rows; b++) {
    const std::int32_t parent = columns.parent.get(b);
    if (parent == kNull) {
      root_[b] = columns.shared_key.has(b) ? keyed.emplace(columns.shared_key.get(b), b).first->second : b;
    } else if (parent >= 0 && parent < b) {
      root_[b] = root_[parent];
      if (!sum(offset_[parent], columns.parent_offset.get(b, 0), 1, offset_[b])) {
        throw BadTape("buffer " + str(b) + " begins beyond 2^63", "bytes that can be counted");
      }
      depth[b] = std::uint8_t(depth[parent] + 1);
      if (depth[b] > kMaxBufferDepth) {
        throw BadTape("buffer " + str(b) + " lies in " + str(depth[b]) + " others, one in the other",
                      "at most " + str(kMaxBufferDepth));
      }
    } else {
      throw BadTape("buffer " + str(b) + " has parent " + str(parent), "a buffer with a lower id");
    }
  }
}

bool Buffers::is_whole(std::int32_t buffer) const {
  for (std::int32_t parent = this->parent(buffer); parent != kNull; buffer = parent, parent = this->parent(parent)) {
    if (offset_[buffer] != offset_[parent] || bytes(buffer) != bytes(parent)) return false;
  }
  return true;
}

Ranges::Ranges(const Contract& contract, const Buffers& buffers) : contract_(contract), buffers_(buffers) { read(); }

void Ranges::read() {
  const AccessColumns& t = contract_.columns().accesses;
  sets_ = Grouped(t.set, t.rows);
  first_.reserve(std::size_t(sets_.groups()) + 1), first_growing_.reserve(std::size_t(sets_.groups()) + 1);
  for (std::int32_t group = 0; group < sets_.groups(); group++) {
    first_.push_back(std::uint32_t(accesses_.size()));
    first_growing_.push_back(std::uint32_t(growing_.size()));
    for (std::uint32_t i = sets_.first(group); i < sets_.first(group + 1); i++) {
      const std::int32_t row = sets_.row(i), buffer = t.buffer.get(row);
      const auto where = [&] { return "access set " + str(sets_.key(group)); };
      if (buffer >= buffers_.rows() || buffer < kNull) {
        throw BadTape(where() + ": buffer " + str(buffer), "a buffer id below " + str(buffers_.rows()));
      }
      Growing part{};
      part.at = std::uint32_t(accesses_.size());
      part.bytes = t.bytes.get(row, 0);
      part.offset_per_arg = t.offset_per_arg.get(row, 0), part.bytes_per_arg = t.bytes_per_arg.get(row, 0);
      part.pooled = t.unit_bytes.has(row);
      part.unit_bytes = t.unit_bytes.get(row, 0);
      const bool grows = part.pooled || part.offset_per_arg != 0 || part.bytes_per_arg != 0;
      if (buffer == kNull || (!grows && part.bytes <= 0)) continue;
      Access a{};
      a.root = buffers_.root(buffer), a.buffer = buffer, a.row = row;
      a.mode = Mode(t.mode.get(row));
      a.observed = t.origin.get(row) == std::int8_t(Origin::observed) && a.mode != Mode::may_write;
      if (!sum(buffers_.offset(buffer), t.offset.get(row, 0), 1, a.begin) || !sum(a.begin, part.bytes, 1, a.end)) {
        throw BadTape(where() + " reaches beyond 2^63", "bytes that can be counted");
      }
      part.begin = a.begin;
      accesses_.push_back(a);
      if (grows) growing_.push_back(part);
    }
    if (sets_.key(group) == 0 && growing_.size() > first_growing_.back()) {  // 0 is the empty set
      accesses_.resize(first_.back()), growing_.resize(first_growing_.back());
    }
  }
  first_.push_back(std::uint32_t(accesses_.size()));
  first_growing_.push_back(std::uint32_t(growing_.size()));

  const ListColumns& lists = contract_.columns().lists;
  lists_ = Grouped(lists.list, lists.rows);
  bool pooled = false;
  for (const Growing& g : growing_) pooled = pooled || g.pooled;
  if (!pooled) return;
  units_.resize(std::size_t(lists.rows));
  for (std::int32_t group = 0; group < lists_.groups(); group++) {
    const std::uint32_t begin = lists_.first(group), end = lists_.first(group + 1);
    for (std::uint32_t i = begin; i < end; i++) units_[i] = lists.unit.get(lists_.row(i));
    std::sort(units_.begin() + begin, units_.begin() + end);
  }
}

void Ranges::fail(Row row, const std::string& found, const std::string& expected) const {
  throw BadTape("op " + str(contract_.columns().ops.op.get(row)) + found, expected);
}

// The accesses of a set some of which grow, as an op has them.
Span<Access> Ranges::grown(Row row, std::int32_t group) {
  spans_.clear(), places_.clear();
  bool all = true;
  for (std::uint32_t i = first_growing_[group]; i < first_growing_[group + 1]; i++) {
    if (grow(row, growing_[i])) continue;
    Access& none = accesses_[growing_[i].at];
    none.end = none.begin;
    all = false;
  }
  for (const Place& p : places_) accesses_[p.at].spans = Span<Bytes>(spans_.data() + p.first, p.count);
  const Span<Access> found{accesses_.data() + first_[group], first_[group + 1] - first_[group]};
  if (all) return found;
  found_.clear();
  for (const Access& a : found) {
    if (a.end > a.begin) found_.push_back(a);
  }
  return found_;
}

// False where the access is empty.
bool Ranges::grow(Row row, const Growing& part) {
  const OpColumns& ops = contract_.columns().ops;
  if (!ops.arg.has(row) && (part.offset_per_arg != 0 || part.bytes_per_arg != 0)) {
    fail(row, " has no arg", "one: its access set grows with it");
  }
  const std::int64_t arg = ops.arg.get(row, 0);
  Access& a = accesses_[part.at];
  std::int64_t bytes = 0;
  if (!sum(part.begin, arg, part.offset_per_arg, a.begin) || !sum(part.bytes, arg, part.bytes_per_arg, bytes) ||
      !sum(a.begin, bytes, 1, a.end)) {
    fail(row, " reaches beyond 2^63", "bytes that can be counted");
  }
  return bytes > 0 && (!part.pooled || repeat(row, part));
}

// Spells out an access that repeats for each unit of the op's list.
bool Ranges::repeat(Row row, const Growing& part) {
  const std::int32_t list = contract_.columns().ops.list.get(row);
  const std::int32_t group = list == kNull ? -1 : lists_.find(list);
  if (group < 0) {
    fail(row, list == kNull ? ": no list" : ": list " + str(list), "a list: its access set names units");
  }
  Access& a = accesses_[part.at];
  const std::size_t begin = spans_.size();
  const std::int64_t size = a.end - a.begin;
  for (std::uint32_t i = lists_.first(group); i < lists_.first(group + 1); i++) {
    std::int64_t low = 0, high = 0;
    if (!sum(a.begin, units_[i], part.unit_bytes, low) || !sum(low, size, 1, high)) {
      fail(row, " reaches beyond 2^63", "bytes that can be counted");
    }
    if (spans_.size() > begin && low <= spans_.back().end) spans_.back().end = std::max(spans_.back().end, high);
    else spans_.push_back({low, high});
  }
  if (spans_.size() == begin) return false;
  a.begin = spans_[begin].begin, a.end = spans_.back().end;
  a.spans = {};
  if (spans_.size() == begin + 1) spans_.pop_back();
  else places_.push_back({part.at, begin, spans_.size() - begin});
  return true;
}

}  // namespace tapedelay
