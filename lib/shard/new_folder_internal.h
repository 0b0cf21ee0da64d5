// Makes folders of which nothing is seen before they are whole.
#pragma once

#include <memory>
#include <string>

#include "base/file.h"
#include "base/random_access_file.h"
#include "shard/manifest.h"

namespace ql::shard {

class NewFolder : public AtomicFolder {
 public:
  // `path` as the functions of pack_target.h return it. Makes the folder's parents.
  explicit NewFolder(const fs::path& path);
  const fs::path& path() const { return path_; }
  // Creates a file in it.
  std::unique_ptr<NewFile> create(const std::string& file) const {
    return std::make_unique<NewFile>(temporary() / file, (path_ / file).string());
  }

 private:
  fs::path path_;
};

class NewPack : public NewFolder {
 public:
  // `force` as in PackOptions. Throws what check_pack_target() throws.
  NewPack(const fs::path& folder, bool force);
  // Writes the vocabulary's file, unless `text` is empty, and its entry in the manifest.
  void write_vocabulary(const std::string& text, Manifest& manifest) const;
  // Writes the manifest, sets its checksum, and gives the folder its name. Throws Error when
  // readers would refuse the manifest.
  void finish(Manifest& manifest);

 private:
  void write_file(const std::string& file, const std::string& content) const;

  bool force_;
};

}  // namespace ql::shard
