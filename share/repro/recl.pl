# Computes what recl prints: recl.pl STEP LONGEST RATIOS THRESHOLD
# reads a line for each network from standard input: its name and, after tabs, the files of its losses, which begin
# at token 0, STEP, 2 * STEP and so on of the same stream.
use strict;
use warnings;

sub fail { print STDERR 'recl: error: ', @_, "\n"; exit 1 }

my ($step, $longest, $ratios, $threshold) = @ARGV;
my $lengths = $longest / $step;

# $loss{network}[context / step][i] is the loss of the i-th target that counts.
my (@networks, %loss, $targets);
while (<STDIN>) {
  chomp;
  my ($network, @files) = split /\t/;
  push @networks, $network;
  my $begin = 0;
  for my $file (@files) {
    open my $in, '<:raw', $file or fail("$file: cannot open: $!");
    local $/;
    my @losses = unpack 'f<*', <$in>;
    # Token t of the complete stream is target t - $begin, the first one having none before it. Since the
    # last reset it has seen 1 to $longest tokens.
    my $last = $begin + @losses;
    $targets = int($last / $step) if !defined $targets || int($last / $step) < $targets;
    for (my $t = $begin + $step; $t <= $last; $t += $step) {
      my $context = ($t - $begin - 1) % $longest + 1;
      $loss{$network}[$context / $step][$t / $step] = $losses[$t - $begin - 1];
    }
    $begin += $step;
  }
}
# Only targets after the beginning of the last stream have been read with every context length.
my @all = ($lengths .. $targets);
fail("the data has too few tokens for --longest $longest") if @all < 10;

# min_of(context): the least loss of the group, by target.
sub min_of {
  my ($context) = @_;
  my @least;
  for my $t (@all) {
    for my $network (@networks) {
      my $loss = $loss{$network}[$context][$t];
      $least[$t] = $loss if !defined $least[$t] || $loss < $least[$t];
    }
  }
  return \@least;
}

# mean(network, context, baseline, targets): of the losses, each the baseline's at most.
sub mean {
  my ($network, $context, $baseline, @counted) = @_;
  my $sum = 0;
  for my $t (@counted) {
    my $loss = $loss{$network}[$context][$t];
    $sum += $loss < $baseline->[$t] ? $loss : $baseline->[$t];
  }
  return $sum / @counted;
}

print join("\t", qw(network ratio context gain recl)), "\n";
for my $ratio (split /,/, $ratios) {
  for my $network (@networks) {
    my ($found, @lines);
    for my $context (1 .. $lengths - 1) {
      my $baseline = min_of($context);
      my @hardest = sort {$baseline->[$b] <=> $baseline->[$a] || $a <=> $b} @all;
      my $count = int($ratio * @all) || 1;
      my @counted = @hardest[0 .. $count - 1];
      my $short = mean($network, $context, $baseline, @counted);
      my $long = mean($network, $context + 1, $baseline, @counted);
      # The gain in perplexity, without the perplexities, which may be beyond every double.
      my $gain = 1 - exp($long - $short);
      $found //= $context * $step if $gain < $threshold;
      push @lines, join("\t", $network, $ratio, $context * $step, sprintf('%.5f', $gain));
    }
    # A network that gains to the end has no end that was seen.
    $found //= ">=" . $longest;
    print "$_\t$found\n" for @lines;
  }
}
