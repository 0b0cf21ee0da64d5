// A packed folder in the making: nothing is seen of it before it is whole.
#pragma once

#include <string>

#include "base/file.h"
#include "shard/manifest.h"

namespace ql::shard {

class NewPack {
 public:
  // `force` as in PackOptions. Throws what prepare_pack_target() throws.
  NewPack(const fs::path& folder, bool force);
  // The files go there until commit().
  const fs::path& temporary() const { return folder_.temporary(); }
  // The folder as messages name it.
  const std::string& name() const { return name_; }

  // Writes the vocabulary's file, unless `text` is empty, and its entry in the manifest.
  void write_vocabulary(const std::string& text, Manifest& manifest);
  // Writes the manifest, sets its checksum, and gives the folder its name. Throws Error when
  // readers would refuse the manifest.
  void commit(Manifest& manifest);

 private:
  void write_file(const std::string& file, const std::string& content) const;

  bool force_;
  std::string name_;
  AtomicFolder folder_;
};

}  // namespace ql::shard
