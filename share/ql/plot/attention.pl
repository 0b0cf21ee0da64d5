#!/usr/bin/perl
# A table of qleval --attention for gnuplot: attention.pl -- TABLE
#
# A heat map: a row for every head of every layer, a box for every distance, as wide as the tokens that
# a state stands for.
use strict;
use warnings;
use FindBin;
require "$FindBin::Bin/drawing.pl";

my (undef, @files) = @ARGV;
fail('expected one table of attention, found ', scalar @files) if @files != 1;
my (@boxes, @rows, %seen, @values, $widest);
for (rows_of($files[0], qw(layer head granularity tokens probability))) {
    my %row = %$_;
    my $name = sprintf 'layer %d.%d%s', @row{qw(layer head)},
        $row{granularity} > 1 ? sprintf(', %d tokens a state', $row{granularity}) : '';
    push @rows, $name if !$seen{$name}++;
    next if $row{probability} <= 0;
    # Distances begin with 1, because the axis is logarithmic.
    my ($from, $to) = ($row{tokens} + 1, $row{tokens} + 1 + $row{granularity});
    # The share of one token of the state, so that scales can be compared.
    my $value = $row{probability} / $row{granularity};
    push @boxes, join ' ', sqrt($from * $to), scalar(@rows), $from, $to, @rows - 0.5, @rows + 0.5, $value;
    push @values, $value;
    $widest = $to if !defined $widest || $to > $widest;
}
fail("$files[0]: has no probabilities") if !@boxes;
print_frame(1);
printf "set xlabel %s\n", quoted('distance in tokens, plus 1');
print "set logscale x 2\nset logscale cb\nset palette defined (0 '#FFFFFF', 0.4 '#E69F00', 0.7 '#D55E00', 1 '#301000')\n";
printf "set cblabel %s\n", quoted('mean probability of a token');
# The scale does not depend on the probabilities, so that the pictures of two networks can be compared. Its
# least value is below an even distribution over the longest distance.
printf "set cbrange [%g:1]\n", least(1e-4, 0.1 / $widest);
# Names of rows may be long. The room for the colours and their label is kept.
print "set lmargin at screen 0.22\nset rmargin at screen 0.84\n";
printf "set xrange [1:%g]\n", $widest;
print "set yrange [0.5:", @rows + 0.5, "] reverse\n";
my $every = int(@rows / 33) + 1;
printf "set ytics (%s) font ',9'\n", join ', ', map { quoted($rows[$_]) . ' ' . ($_ + 1) } grep { $_ % $every == 0 } 0 .. $#rows;
print "\$boxes << END_OF_POINTS\n", map { "$_\n" } @boxes;
print "END_OF_POINTS\n";
print "plot \$boxes using 1:2:3:4:5:6:7 with boxxyerror fillstyle solid noborder fillcolor palette\n";
