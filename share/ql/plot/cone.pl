#!/usr/bin/perl
# A cone of qlctx --position for gnuplot: cone.pl TERMINAL SIZE TITLE -- FILE
#
# In the manner of the paper's figure 5: a row for every stage, the output at the top, and a column for every
# token. Rectangles are states of the segment, pills of memories, hexagons of compressed memories; those that
# the output state depends on are filled. A SIZE or TITLE that is empty follows from the network.
use strict;
use warnings;
use FindBin;
use JSON::PP;
use List::Util qw(max min);
require "$FindBin::Bin/drawing.pl";

my ($terminal, $size, $title, undef, @files) = @ARGV;
my ($most_tokens, $most_rows) = (1024, 64);
fail('expected one cone, found ', scalar @files, ' files') if @files != 1;
open my $input, '<:raw', $files[0] or fail("$files[0]: cannot open: $!");
my $list = eval { local $/; JSON::PP->new->decode(<$input>) } or fail("$files[0]: is not JSON");
my @drawn = grep { ref $_ eq 'HASH' && ref $_->{cone} eq 'HASH' && ref $_->{cone}{stages} eq 'ARRAY' } @$list;
fail("$files[0]: has ", scalar @drawn, ' cones, expected one; give single lengths to qlctx --format json --position N')
    if @drawn != 1;
my ($network, $cone) = ($drawn[0], $drawn[0]{cone});
my @stages = @{$cone->{stages}};
my ($position, $length, $segment) = ($cone->{position} - 1, $cone->{length}, $network->{segment});

# The tokens that a state of this kind stands for.
sub tokens_of {
    my ($stage, $kind) = @_;
    return $kind eq 'compressed_memory' ? $network->{rate} : $stage->{granularity};
}

my $first = min(map {
    my $stage = $_;
    ($stage->{from} // 0, map { @{$stage->{$_}{used}}, @{$stage->{$_}{unused}} } qw(compressed_memory memory segment))
} @stages);
fail("$files[0]: a drawing has at most $most_tokens tokens and $most_rows rows of states, this one needs ",
    $segment - $first, ' and ', scalar @stages) if $segment - $first > $most_tokens || @stages > $most_rows;

# Rows are 1 apart, and scales further; a state is half as high. The picture has 31 pixels a row if it may.
my ($state, @heights) = (0.25);
for my $i (0 .. $#stages) {
    push @heights, $i == 0 ? 0 : $heights[-1] + ($stages[$i]{scale} == $stages[$i - 1]{scale} ? 1 : 1.6);
}
my ($low, $high) = (-1.1, $heights[-1] + 1.1);
my ($width, $height) = $size ? split /x/, $size : (900, int(31 * ($high - $low)) + 180);
my ($left, $right) = (0.16, 0.77);
my $token = $width * ($right - $left) / ($segment - $first);  # in pixels, as the next
my $row = max(1, $height - 180) / ($high - $low);
print "set encoding utf8\nset terminal $terminal size $width,$height noenhanced\n";

# Closed polygons: kind => [[x, y, x, y, ...], ...].
my %polygons;

# Adds a state as wide as its tokens, less a gap of some pixels.
sub add_state {
    my ($kind, $shape, $begin, $tokens, $y, $half) = @_;
    my $gap = min(2 / $token, $tokens / 4) / 2;
    my ($from, $to) = ($begin + $gap, $begin + $tokens - $gap);
    # The corners of a quarter: part of the ends' width, part of the height.
    my %corners = (rectangle => [[0, 1]], hexagon => [[0, 0], [1, 1]],
        pill => [map { [1 - cos($_ * atan2(1, 1) / 2), sin($_ * atan2(1, 1) / 2)] } 0 .. 4]);
    my $end = min(($to - $from) / 2, $half * $row / $token * ($shape eq 'hexagon' ? 0.6 : 1));
    my @quarter = @{$corners{$shape}};
    push @{$polygons{$kind}}, [
        (map { ($from + $end * $_->[0], $y + $half * $_->[1]) } @quarter),
        (map { ($to - $end * $_->[0], $y + $half * $_->[1]) } reverse @quarter),
        (map { ($to - $end * $_->[0], $y - $half * $_->[1]) } @quarter),
        (map { ($from + $end * $_->[0], $y - $half * $_->[1]) } reverse @quarter)];
}

my %shapes = (segment => 'rectangle', memory => 'pill', compressed_memory => 'hexagon');
for my $i (0 .. $#stages) {
    my ($stage, $y) = ($stages[$i], $heights[$i]);
    add_state('earlier', 'rectangle', $_, $stage->{granularity}, $y, $state / 2) for @{$stage->{earlier}};
    for my $kind (keys %shapes) {
        for my $use (qw(used unused)) {
            add_state("${kind}_$use", $shapes{$kind}, $_, tokens_of($stage, $kind), $y, $state)
                for @{$stage->{$kind}{$use}};
        }
    }
    next if !defined $stage->{from};
    # The cone within a row, and down to the row below.
    my ($from, $to) = ($stage->{from}, $stage->{to} + 1);
    push @{$polygons{cone}}, [$from, $y + $state, $to, $y + $state, $to, $y - $state, $from, $y - $state];
    next if $i == 0 || !defined $stages[$i - 1]{from};
    my ($under, $below) = ($stages[$i - 1], $heights[$i - 1] + $state);
    push @{$polygons{cone}}, [$from, $y - $state, $to, $y - $state, $under->{to} + 1, $below, $under->{from}, $below];
}
add_state('chosen', 'rectangle', $position, 1, $heights[-1], $state);

# The title, and what the network's rows are.
my %names = (ql => 'Transformer-QL', xl => 'Transformer-XL', compressive => 'Compressive Transformer',
    multiscale => 'Multi-scale Transformer', vanilla => 'Transformer');
my $lengths = join ', ', $names{$network->{arch}} // $network->{arch}, "segment $segment", "memory $network->{memory}",
    $network->{compressed_memory} ? "compressed memory $network->{compressed_memory}" : ();
my $layers = join ', ', join(' + ', @{$network->{scales}}) . ("@{$network->{scales}}" eq '1' ? ' layer' : ' layers'),
    $network->{output_layers} ? "$network->{output_layers} in the output block" : (),
    defined $network->{rate} ? "compression rate $network->{rate}" : ();
printf "set title %s.\"\\n\".%s font ',15'\n", quoted($lengths), quoted($layers) if $title eq '';
printf "set ytics scale 0 (%s)\n", join ', ', map { quoted($stages[$_]{name}) . " $heights[$_]" } 0 .. $#stages;
my $last_scale = $stages[-1]{scale};
my $scales = @{$network->{scales}};
for my $scale (1 .. $last_scale) {
    my @of_scale = grep { $stages[$_]{scale} == $scale } 0 .. $#stages;
    my $stage = $stages[$of_scale[0]];
    my @counts = map { @{$stage->{$_}{used}} + @{$stage->{$_}{unused}} } qw(segment memory compressed_memory);
    my $y = ($heights[$of_scale[0]] + $heights[$of_scale[-1]]) / 2;
    my $line = 0.4;
    for ([$scale > $scales ? 'output block' : "scale $scale", 11],
        ["$stage->{granularity} token" . ($stage->{granularity} == 1 ? '' : 's') . ' a state', 9],
        ["segment $counts[0], memory $counts[1]" . ($counts[2] ? " + $counts[2]" : ''), 9]) {
        printf "set label %s at graph %g, first %g font ',%d'\n", quoted($_->[0]), 1.03 + 0.01 * $scales, $y + $line, $_->[1];
        $line -= 0.45;
    }
    # From the output of every scale to the average, at the right.
    next if $scale > $scales || $last_scale <= $scales;
    my ($average) = grep { $stages[$_]{scale} > $scales } 0 .. $#stages;
    my ($from, $to, $lane) = ($heights[$of_scale[-1]], $heights[$average], 1.01 + 0.01 * ($scales - $scale + 1));
    my $arrow = "set arrow from graph %g, first %g to graph %g, first %g %s lc rgb '#444444'\n";
    printf $arrow, 1.003, $from, $lane, $from, 'nohead';
    printf $arrow, $lane, $from, $lane, $to, 'nohead';
    printf $arrow, $lane, $to, 1.003, $to, 'head size screen 0.006,25 filled';
}

# Tokens, earlier steps, and the context.
print "set border 1\nset xrange [$first:$segment]\nset yrange [$low:$high]\n";
print "set lmargin at screen $left\nset rmargin at screen $right\n";
print "set object rectangle from 0, graph 0 to $segment, graph 1 behind fillcolor rgb '#F4F1E6' fillstyle solid noborder\n";
printf "set label 'this step' at %g, graph 0.98 center font ',9' textcolor rgb '#555555'\n", $segment / 2;
for (my $begin = -$segment; $begin >= $first && $segment * $token >= 6; $begin -= $segment) {
    print "set arrow from $begin, graph 0 to $begin, graph 1 nohead back lc rgb '#DDDDDD'\n";
}
my $distance = 1;
$distance *= 2 while $distance * $token < 46;
my $minus = "t \xE2\x88\x92 ";
printf "set xtics nomirror out scale 0.6 (%s) font ',9'\n", join ', ',
    map { sprintf '%s %g', quoted($_ ? "$minus$_" : 't'), $position - $_ + 0.5 }
    grep { $_ % $distance == 0 } 0 .. $position - $first;
for my $at ($position - $length + 0.5, $position + 0.5) {
    print "set arrow from $at, first ", -$state, " to $at, graph 0 nohead dt 2 lc rgb '#222222'\n";
}
printf "set arrow from %g, first -0.75 to %g, first -0.75 heads size screen 0.008,25 filled lc rgb '#222222'\n",
    $position - $length + 0.5, $position + 0.5 if $length;
printf "set xlabel %s\n", quoted("context length $length: oldest token " . ($length ? "$minus$length" : 't'));

print "set key bmargin center horizontal Left reverse samplen 2 spacing 1.2 noautotitle\n";
my @kinds = (
    [cone => "fillcolor rgb '#2F76B8' fillstyle transparent solid 0.1 noborder"],
    [earlier => "fillcolor rgb '#B9B9B9' fillstyle solid noborder title 'of earlier steps'"],
    [segment_unused => "fillcolor rgb '#FFFFFF' fillstyle solid border lc rgb '#14497F' title 'not needed'"],
    [memory_unused => "fillcolor rgb '#FFFFFF' fillstyle solid border lc rgb '#B4571A'"],
    [compressed_memory_unused => "fillcolor rgb '#FFFFFF' fillstyle solid border lc rgb '#6B2C86'"],
    [segment_used => "fillcolor rgb '#2F76B8' fillstyle solid border lc rgb '#14497F' title 'segment'"],
    [memory_used => "fillcolor rgb '#F2A869' fillstyle solid border lc rgb '#B4571A' title 'memory'"],
    [compressed_memory_used => "fillcolor rgb '#C79BDB' fillstyle solid border lc rgb '#6B2C86' title 'compressed memory'"],
    [chosen => "fillcolor rgb '#2F76B8' fillstyle solid border lc rgb '#000000' title 'the output state'"]);
my @plots;
for (grep { $polygons{$_->[0]} } @kinds) {
    my ($kind, $style) = @$_;
    print "\$$kind << END_OF_POINTS\n";
    for my $corners (@{$polygons{$kind}}) {
        my @corners = @$corners;
        print join(' ', splice @corners, 0, 2), "\n" while @corners;
        print "\n";
    }
    print "END_OF_POINTS\n";
    push @plots, "\$$kind with filledcurves closed $style";
}
# The output state may be too narrow to be seen.
printf "\$pointer << END_OF_POINTS\n%g %g\nEND_OF_POINTS\n", $position + 0.5, $heights[-1] + 0.5;
print 'plot ', join(", \\\n  ", @plots, "\$pointer with points pt 11 ps 0.8 lc rgb '#000000'"), "\n";
