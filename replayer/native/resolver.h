// Walks the rows of a tape once and adds edges: the rules of formats/edges.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "contract.h"
#include "grouped.h"

namespace tapedelay {

class Resolver {
 public:
  explicit Resolver(Contract& contract)
      : c_(contract), ops_(contract.columns_.ops), queues_(contract.columns_.queues) {}

  void run();

 private:
  // An edge whose target has been passed, or is still to come.
  struct Late {
    Row target, source;
    Rule rule;
    bool after;  // after the edges of the walk
  };
  // A unit that a host thread waited for, the rule that says so, and the queue on which the thread waited.
  struct Blocked {
    Row unit;
    Rule rule;
    std::int32_t queue;
  };

  // contract.cpp: reading, and the edges that follow row order
  void read();
  Row row_of(std::int64_t op) const;
  void refer(const Column<std::int64_t>& values, std::int64_t rows, const char* what) const;
  Row parent_row(Row row) const;
  Kind kind(Row row) const { return Kind(ops_.kind.get(row)); }
  bool edge(Row source, Row target, Rule rule);
  void after(std::vector<Row>& tail, Row unit, Rule rule);
  void after_all(const std::vector<Row>& tail, Row unit, Rule rule);
  void after_blocked(std::vector<Blocked>& blocked, Row unit, bool covers);
  void after_queue(Row unit, std::int32_t queue, std::int32_t waiter, Rule rule);
  void walk();
  Row wait(Row row, bool newest);
  void wait_any(Row row);
  void blocking_sets();
  bool blocks(std::int32_t device, std::int32_t set) const;

  // switched.cpp: what debugging switches add
  void find_switches();
  bool switched(const Column<std::int32_t>& kinds, std::int32_t device, Row row) const;
  void before_switched(Row row, Row unit, bool issued);
  void waited_for_collective(Row row, Row record);

  // units.cpp: collectives joined, parents and all that is above them
  void kinship();
  void climb();
  void gather(const std::vector<Row>& parents, std::vector<Row>& above) const;
  [[noreturn]] void fault(Row unit, const std::string& what) const;

  // named_edges.cpp: edges whatever the row order
  void semaphores();
  void listed_edges();
  void merge();

  Contract& c_;
  const OpColumns& ops_;
  const QueueColumns& queues_;
  bool dense_ = false, any_blocking_ = false, any_switch_ = false, grouped_ = false;
  Row at_ = kNull;
  std::vector<std::pair<Row, Row>> relations_;  // parent, child, in the order in which rows say so
  std::vector<Late> late_;
  // The last op of an in-order queue, behind it those of its ancestors that have not ended; all ops of any other.
  std::vector<std::vector<Row>> tails_, loose_;
  std::vector<std::vector<Blocked>> blocked_;  // what a host thread waited for and its own ops do not cover yet
  std::unordered_map<std::int32_t, std::vector<Row>> serial_;  // last op of a queue that a switch puts in order
  std::unordered_map<Row, Row> last_part_;                     // last part of an op whose parts are in order
  std::vector<std::uint8_t> last_is_collective_, behind_collective_;  // per queue; per row
  std::vector<std::uint32_t> seen_;
  std::unordered_map<std::uint64_t, std::uint32_t> waited_;
  std::vector<Row> newest_;
  Grouped lists_, sets_;
  std::vector<std::int8_t> directions_;
};

}  // namespace tapedelay
