// An array and a counted reference that can do without memory: growing may fail, and then says so.
#pragma once
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include "memory.h"

namespace td {

// Of plain data. The first refusal makes it failed(): what was in it stays, what comes is dropped, so that only who
// uses the result has to ask.
template <class T>
class array {
    static_assert(std::is_trivially_copyable<T>::value, "moved by memmove");

  public:
    array() = default;
    ~array() { free(data_); }
    array(const array &) = delete;
    array & operator=(const array &) = delete;
    array(array && o) noexcept { swap(o); }
    array & operator=(array && o) noexcept {
        swap(o);
        return *this;
    }

    T * data() { return data_; }
    const T * data() const { return data_; }
    T * begin() { return data_; }
    T * end() { return data_ + size_; }
    const T * begin() const { return data_; }
    const T * end() const { return data_ + size_; }
    T & operator[](size_t i) { return data_[i]; }
    const T & operator[](size_t i) const { return data_[i]; }
    size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    bool failed() const { return failed_; }

    bool reserve(size_t n) {
        if (n <= room_) {
            return true;
        }
        if (failed_ || n > SIZE_MAX / 2 / sizeof(T)) {
            failed_ = true;
            return false;
        }
        void * at = try_resize(data_, n * sizeof(T));
        if (!at) {
            failed_ = true;
            return false;
        }
        data_ = static_cast<T *>(at);
        room_ = n;
        return true;
    }
    // All of it becomes `value`. False: as it was.
    bool assign(size_t n, const T & value) {
        if (!reserve(n)) {
            return false;
        }
        for (size_ = 0; size_ < n; size_++) {
            new (data_ + size_) T(value);
        }
        return true;
    }
    bool push_back(const T & value) { return insert(size_, value); }
    bool insert(size_t at, T value) {   // a copy: it may lie in here
        if (size_ == room_ && !reserve(size_ ? size_ * 2 : 16)) {
            return false;
        }
        memmove(static_cast<void *>(data_ + at + 1), data_ + at, (size_ - at) * sizeof(T));
        data_[at] = value;
        size_++;
        return true;
    }
    bool append(const T * from, size_t n) {
        if (n > room_ - size_ && (n > SIZE_MAX / 2 - size_ || !reserve((size_ + n) * 2))) {
            failed_ = true;
            return false;
        }
        if (n) {
            memcpy(static_cast<void *>(data_ + size_), from, n * sizeof(T));
        }
        size_ += n;
        return true;
    }
    void erase(size_t from, size_t to) {
        memmove(static_cast<void *>(data_ + from), data_ + to, (size_ - to) * sizeof(T));
        size_ -= to - from;
    }
    void clear() { size_ = 0; }
    void swap(array & o) noexcept {
        std::swap(data_, o.data_);
        std::swap(size_, o.size_);
        std::swap(room_, o.room_);
        std::swap(failed_, o.failed_);
    }

  private:
    T * data_ = nullptr;
    size_t size_ = 0, room_ = 0;
    bool failed_ = false;
};

// 128 bits of hash -> V, open addressing. Nothing is ever removed but all at once.
struct key128 {
    uint64_t a, b;
    bool operator==(const key128 & o) const { return a == o.a && b == o.b; }
};

template <class V>
class hash_table {
  public:
    const V * find(const key128 & k) const {
        if (cells_.empty()) {
            return nullptr;
        }
        for (size_t i = k.a;; i++) {
            const cell & c = cells_[i & (cells_.size() - 1)];
            if (!c.used) {
                return nullptr;
            }
            if (c.key == k) {
                return &c.value;
            }
        }
    }
    bool add(const key128 & k, const V & value) {   // is not there yet
        if ((used_ + 1) * 2 > cells_.size() && !grow()) {
            return false;
        }
        put(cells_, {k, value, true});
        used_++;
        return true;
    }
    size_t size() const { return used_; }
    void clear() {
        for (cell & c : cells_) {
            c.used = false;
        }
        used_ = 0;
    }

  private:
    struct cell {
        key128 key;
        V value;
        bool used;
    };
    static void put(array<cell> & cells, const cell & c) {
        size_t i = c.key.a;
        while (cells[i & (cells.size() - 1)].used) {
            i++;
        }
        cells[i & (cells.size() - 1)] = c;
    }
    bool grow() {
        array<cell> larger;
        if (!larger.assign(cells_.empty() ? 64 : cells_.size() * 2, cell{})) {
            return false;
        }
        for (const cell & c : cells_) {
            if (c.used) {
                put(larger, c);
            }
        }
        cells_.swap(larger);
        return true;
    }
    array<cell> cells_;
    size_t used_ = 0;
};

// Base of what `ref` points to.
class counted {
  public:
    counted() = default;
    counted(const counted &) = delete;
    counted & operator=(const counted &) = delete;

  private:
    template <class T>
    friend class ref;
    std::atomic<uint32_t> refs_{0};
};

template <class T>
class ref {
  public:
    ref() = default;
    explicit ref(T * p) : p_(p) { keep(); }
    ref(const ref & o) : p_(o.p_) { keep(); }
    ref(ref && o) noexcept : p_(o.p_) { o.p_ = nullptr; }
    ref & operator=(ref o) noexcept {
        std::swap(p_, o.p_);
        return *this;
    }
    ~ref() {
        if (p_ && p_->refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            delete p_;
        }
    }
    T * get() const { return p_; }
    T * operator->() const { return p_; }
    T & operator*() const { return *p_; }
    explicit operator bool() const { return p_ != nullptr; }

  private:
    void keep() {
        if (p_) {
            p_->refs_.fetch_add(1, std::memory_order_relaxed);
        }
    }
    T * p_ = nullptr;
};

}  // namespace td
