// The queues of a tape as a discrete-event simulation with nothing but a binary heap of end times: the limit for
// any simulator that handles its events one by one in the order of their times.
// heap FILE RUNS: prints the seconds of the fastest run and when the last op ended.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <queue>
#include <vector>

using Ints = std::vector<std::int64_t>;

struct Event {
  std::int64_t ns, op;
  bool operator<(const Event& other) const { return ns > other.ns || (ns == other.ns && op > other.op); }
};

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::FILE* file = std::fopen(argv[1], "rb");
  std::int64_t sizes[2];
  if (file == nullptr || std::fread(sizes, 8, 2, file) != 2) return 2;
  const std::int64_t rows = sizes[0];
  auto read = [&](std::int64_t count) {
    Ints values(count);
    if (std::fread(values.data(), 8, count, file) != std::size_t(count)) std::exit(2);
    return values;
  };
  const Ints queue = read(rows), issuer = read(rows), gap = read(rows), took = read(rows), first = read(rows + 1);
  const Ints source = read(sizes[1]);
  // what follows an op: on its queue, on its thread, and what waits for it
  Ints next_on_queue(rows, -1), next_on_thread(rows, -1), out(rows + 1, 0), target(source.size());
  Ints waits(rows, 0), last_on_queue(4097, -1), last_on_thread(4097, -1);
  for (std::int64_t op = 0; op < rows; ++op) {
    if (std::int64_t& last = last_on_queue[queue[op]]; queue[op] != issuer[op]) {
      if (last >= 0) { next_on_queue[last] = op; ++waits[op]; }
      last = op;
    }
    std::int64_t& last = last_on_thread[issuer[op]];
    if (last >= 0) { next_on_thread[last] = op; ++waits[op]; }
    last = op;
    waits[op] += first[op + 1] - first[op];
  }
  for (const std::int64_t s : source) ++out[s + 1];
  for (std::int64_t op = 0; op < rows; ++op) out[op + 1] += out[op];
  Ints fill(out.begin(), out.end() - 1);
  for (std::int64_t op = 0; op < rows; ++op)
    for (std::int64_t i = first[op]; i < first[op + 1]; ++i) target[fill[source[i]]++] = op;

  double fastest = 1e9;
  std::int64_t end = 0;
  for (int run = 0; run < std::atoi(argv[2]); ++run) {
    const auto begin = std::chrono::steady_clock::now();
    Ints left = waits, ready(rows, 0);
    std::priority_queue<Event> heap;
    end = 0;
    std::vector<std::int64_t> runnable;
    auto arrive = [&](std::int64_t op, std::int64_t ns) {
      ready[op] = std::max(ready[op], ns);
      if (--left[op] == 0) runnable.push_back(op);
    };
    auto drain = [&] {
      while (!runnable.empty()) {
        const std::int64_t op = runnable.back();
        runnable.pop_back();
        heap.push({ready[op] + took[op], op});
      }
    };
    // a thread goes on as soon as it has issued another queue's op; its own it waits for
    auto go_on = [&](std::int64_t op, std::int64_t ns) {
      for (std::int64_t next = op; next >= 0;) {
        const std::int64_t at = ns + gap[next];
        const bool foreign = queue[next] != issuer[next];
        arrive(next, at);
        if (!foreign) break;
        ns = at;
        next = next_on_thread[next];
      }
    };
    std::vector<char> begun(4097, 0);
    for (std::int64_t op = 0; op < rows; ++op)
      if (!begun[issuer[op]]) {
        begun[issuer[op]] = 1;
        ++left[op];
        go_on(op, 0);
      }
    drain();
    while (!heap.empty()) {
      const Event event = heap.top();
      heap.pop();
      end = std::max(end, event.ns);
      for (std::int64_t i = out[event.op]; i < out[event.op + 1]; ++i) arrive(target[i], event.ns);
      if (next_on_queue[event.op] >= 0) arrive(next_on_queue[event.op], event.ns);
      if (queue[event.op] == issuer[event.op]) go_on(next_on_thread[event.op], event.ns);
      drain();
    }
    fastest = std::min(fastest, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::printf("%.9f %lld\n", fastest, static_cast<long long>(end));
  return 0;
}
