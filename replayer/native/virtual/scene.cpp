#include "scene.h"

namespace tapedelay {
namespace {

std::vector<std::uint8_t> starting(const Contract& contract, const Order& order) {
  std::vector<std::uint8_t> found(std::size_t(contract.rows()), 0);
  for (const std::int32_t code : order.schedule)
    if (code >= 0) found[code] = 1;
  return found;
}

std::vector<std::uint8_t> with_children(const Contract& contract, const Order& order) {
  std::vector<std::uint8_t> found(std::size_t(contract.rows()), 0);
  for (const std::int32_t code : order.schedule)
    if (code >= 0 && contract.has_children(code)) found[code] = 1;
  return found;
}

}  // namespace

Scene::Scene(const Contract& c, const Buffers& buffers, const Order& order)
    : contract(c), op(c.columns().ops.op.data), runs(starting(c, order)), parts(with_children(c, order)),
      cells(c, buffers), lives(c, buffers, cells, runs) {
  nested = c.has_family();
  first_read.assign(std::size_t(c.rows()), 0);
  std::size_t next = 0;
  for (const std::int32_t code : order.schedule) {
    const Row unit = code >= 0 ? code : ~code;
    const Span<Row> rows = c.rows_of(unit);
    if (rows.size() > 1) {
      if (joint.empty()) joint.assign(std::size_t(c.rows()), 0);
      joint[unit] = 1;
    }
    bool counts = lives.flags(unit) != 0;
    std::size_t judged = 0;
    for (Row row : rows)
      for (const Touch& t : cells.of(row)) {
        counts = counts || !t.still;
        judged += t.judged() && !t.still;
        reads += code >= 0 && t.judged();
      }
    if (!counts) continue;
    codes.push_back(code);
    if (code < 0) continue;
    if (!parts[unit]) codes.push_back(~unit);
    first_read[unit] = std::uint32_t(next);
    next += judged;
  }
  expected.reserve(next);
  if (next > UINT32_MAX) throw TooMuch(std::to_string(next) + " reads", "fewer: replay a window of the tape");
}

}  // namespace tapedelay
