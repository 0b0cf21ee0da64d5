#!/usr/bin/perl
# A table of repro/scaling for gnuplot: scaling.pl X Y -- TABLE
#
# A line for every network and attention in logarithms, named with the slope that least squares find in
# the upper half of its points.
use strict;
use warnings;
use FindBin;
require "$FindBin::Bin/drawing.pl";

my ($x, $y, undef, @files) = @ARGV;
fail('expected one table of scaling, found ', scalar @files) if @files != 1;
my (%points, @order);
for (drawn_rows($files[0], $x, $y, 'positive number', rows_of($files[0], qw(network attention), $x, $y))) {
    my %row = %$_;
    my $name = "$row{network}, $row{attention}";
    push @order, $name if !$points{$name};
    push @{$points{$name}}, [$row{$x}, $row{$y}];
}

# The slope of log y against log x, if there are two different x.
sub slope {
    my @points = map { [log $_->[0], log $_->[1]] } @_[@_ / 2 .. $#_];
    my ($n, $sx, $sy, $sxx, $sxy) = (scalar @points, 0, 0, 0, 0);
    for (@points) {
        $sx += $_->[0];
        $sy += $_->[1];
        $sxx += $_->[0]**2;
        $sxy += $_->[0] * $_->[1];
    }
    return keys %{{map { $_->[0] => 1 } @points}} < 2 ? undef : ($n * $sxy - $sx * $sy) / ($n * $sxx - $sx**2);
}

print_frame(scalar @order);
printf "set xlabel %s noenhanced\nset ylabel %s noenhanced\n", quoted("$x (tokens)"), quoted("$y of a step" =~ tr/_/ /r);
print "set logscale xy\nset format xy '10^{%L}'\nset termoption enhanced\n";
my @plots;
for my $i (0 .. $#order) {
    my @line = @{$points{$order[$i]}};
    print_points("line$i", @line);
    my $slope = slope(@line);
    my $name = $order[$i] . (defined $slope ? sprintf ', slope %.2f', $slope : '');
    push @plots, sprintf "\$line$i with linespoints pt %d ps 0.6 lw 2 dt %d lc rgb '%s' title %s noenhanced",
        7, $order[$i] =~ /linear/ ? 1 : 2, colour($i % 5), quoted($name);
}
print 'plot ', join(", \\\n  ", @plots), "\n";
