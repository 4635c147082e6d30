// The scheduler's own view, as the tap (tap/tap.cpp) reports it: calls, what schedulers were made with, graphs.
#pragma once

namespace td {

// Hands the tap our functions, if it is in this process. Once, when recording has started.
void sched_start();

}  // namespace td
