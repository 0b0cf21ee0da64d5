# make_text LINES FILE: paragraphs and headings of made-up words, the same each time.
make_text() {
  awk -v lines="$1" 'BEGIN {
    srand(20); print "= First = "
    for (line = 2; line <= lines; ++line) {
      if (line % 97 == 0) {print "= Heading " line " = "; continue}
      if (rand() < 0.08) {print ""; continue}
      words = 1 + int(rand() * 12); text = ""
      for (i = 0; i < words; ++i) text = text (i ? " " : "") "W" int(exp(rand() * 7))
      print text
    }
  }' >"$2"
}
