// Rules in a SentencePiece model that rewrite text before it is split.
#pragma once

#include <string_view>

namespace ql::text {

// True when the serialized model has such rules (precompiled_charsmap of its normalizer_spec or
// denormalizer_spec) or is too damaged to tell. Our models have none, because text shall pass
// unchanged. The library would follow rules wherever they point, outside its memory, too.
bool rewrites_text(std::string_view serialized);

}  // namespace ql::text
