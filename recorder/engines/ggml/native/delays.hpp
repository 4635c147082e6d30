// What delays.cpp (applying) and delays_match.cpp (finding) know of each other.
#pragma once
#include "delay_plan.hpp"
#include "delays.h"

namespace td {

bool delays_open(const char * path);
const plan_file & delays_plan();
// Takes the last delays_find of this op back: it was declined.
void delays_take_back(op_kind kind, const queue_info * queue, uint32_t name);

}  // namespace td
