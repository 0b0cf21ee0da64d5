// Objects that are expensive to make, lent to one user at a time.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace ql {

// Safe from several threads. As many objects are made as are lent at once.
template <typename Object>
class ObjectPool {
 public:
  // make() is called without arguments by `take`.
  template <typename Make>
  std::unique_ptr<Object> take(const Make& make) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<Object> object = std::move(idle_.back());
        idle_.pop_back();
        return object;
      }
    }
    return make();
  }
  std::unique_ptr<Object> take() {
    return take([] { return std::make_unique<Object>(); });
  }
  void give_back(std::unique_ptr<Object> object) {
    const std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(std::move(object));
  }
  // Those that are not lent; while nobody takes or gives.
  const std::vector<std::unique_ptr<Object>>& idle() const { return idle_; }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Object>> idle_;
};

}  // namespace ql
