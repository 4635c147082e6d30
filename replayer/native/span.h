// A view of adjacent values (std::span is C++20).
#pragma once

#include <cstddef>
#include <vector>

namespace tapedelay {

template <class T>
struct Span {
  const T* first = nullptr;
  std::size_t count = 0;

  Span() = default;
  Span(const T* data, std::size_t size) : first(data), count(size) {}
  Span(const std::vector<T>& from) : first(from.data()), count(from.size()) {}

  const T* begin() const { return first; }
  const T* end() const { return first + count; }
  std::size_t size() const { return count; }
  bool empty() const { return count == 0; }
  const T& operator[](std::size_t i) const { return first[i]; }
  const T& back() const { return first[count - 1]; }
};

}  // namespace tapedelay
