// Rules in a SentencePiece model that rewrite text before it is split.
#pragma once

#include <string_view>

namespace ql::text {

// Whether the serialized model has such rules (precompiled_charsmap of its normalizer_spec or
// denormalizer_spec), or cannot be told to have none. Ours have none, because text shall pass
// unchanged; and the library follows them wherever they point, outside its memory, too.
bool rewrites_text(std::string_view serialized);

}  // namespace ql::text
