// Finds the files of a packed folder, and reads its manifest and its vocabulary.
#pragma once

#include "shard/manifest.h"

namespace ql::shard {

// Holds the paths of a packed folder and of its manifest.
struct PackedFolder {
  std::filesystem::path folder, manifest;
  std::string name;  // the folder as the user named it: for messages
};

// Returns true when the folder is a checkpoint and has no packed data.
bool is_checkpoint(const std::filesystem::path& path);

// Accepts the folder or its manifest. Throws Error when there is no packed folder.
PackedFolder find_packed_folder(const std::filesystem::path& path);
std::string read_manifest_text(const PackedFolder& place);
Manifest read_manifest(const PackedFolder& place);
// Returns the text of the vocabulary's file, checked against the manifest, or "" if the manifest
// names no such file.
std::string read_vocabulary_text(const PackedFolder& place, const Manifest& manifest);

// Returns the paths of the files that packed data consists of.
std::vector<std::string> files_of(const PackedFolder& place, const Manifest& manifest);
// Returns the files that a program reads for the data `name`: those of packed data, or the name
// itself if there is no packed data that can be read.
std::vector<std::string> files_of(const std::string& name);

// Returns the path of a file that the manifest names. Throws FormatError when the name leads out of
// the folder (".." or an absolute path), and for a symbolic link without a target. Other links are
// followed, even out of the folder: caches of downloads consist of such links, and the manifest's
// hashes protect the content.
std::filesystem::path path_inside(const PackedFolder& place, const std::string& file);

}  // namespace ql::shard
