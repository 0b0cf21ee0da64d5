# The common parts of the pictures of logs and tables. Both programs print a script for gnuplot.
use strict;
use warnings;

# Most colour-blind readers can distinguish these, and they differ in grey, too (Okabe and Ito).
my @colours = qw(0072B2 D55E00 009E73 CC79A7 E69F00 56B4E9 000000 8C6D31);

sub colours { return scalar @colours }
sub colour { return "#$colours[$_[0] % @colours]" }

# Half way to white: for what stands in the background.
sub pale_colour {
    my @parts = map { hex } $colours[$_[0] % @colours] =~ /../g;
    return sprintf '#%02X%02X%02X', map { int(255 - (255 - $_) * 0.45) } @parts;
}

sub fail { print STDERR 'plot: error: ', @_, "\n"; exit 1 }
sub note { print STDERR 'plot: note: ', @_, "\n" }

sub quoted {
    my ($text) = @_;
    $text =~ tr/\x00-\x1F\x7F/?/;
    $text =~ s/'/''/g;
    return "'$text'";
}

# The shortest ends of these paths that differ; each path is a list of folders.
sub short_names {
    my @paths = @_;
    for (my $parts = 1;; $parts++) {
        my (%seen, $longer);
        my @names = map {
            $longer = 1 if @$_ > $parts;
            join '/', @$_ > $parts ? @{$_}[-$parts .. -1] : @$_
        } @paths;
        my $distinct = grep { !$seen{$_}++ } @names;
        return @names if $distinct == @names || !$longer;
    }
}

sub least { my $least = shift; for (@_) { $least = $_ if $_ < $least } return $least }
sub most { my $most = shift; for (@_) { $most = $_ if $_ > $most } return $most }

# Round numbers from $low to $high, some six of them: 1, 2 and 5 times powers of ten over a wide
# range, equal steps over a narrow one. For axes that are logarithmic.
sub tics {
    my ($low, $high) = @_;
    my @tics;
    if ($high / $low >= 4) {
        my @digits = $high / $low >= 1e4 ? (1) : $high / $low >= 15 ? (1, 2, 5) : (1, 1.5, 2, 3, 4, 5, 7);
        for my $power (int(log($low) / log 10) - 2 .. int(log($high) / log 10) + 2) {
            push @tics, grep { $_ >= $low && $_ <= $high } map { $_ * 10**$power } @digits;
        }
    } else {
        my $step = 10**int(log(($high - $low) / 6) / log(10) - 1);
        for my $factor (2, 2.5, 2, 2, 2.5, 2) {
            $step *= $factor if ($high - $low) / $step > 8;
        }
        for (my $at = int($low / $step); $at * $step <= $high; $at++) {
            push @tics, $at * $step if $at * $step >= $low;
        }
    }
    return map { sprintf('%.6g', $_) + 0 } @tics;
}

# The rows of a table as column => value. It has these columns at least.
sub rows_of {
    my ($file, @needed) = @_;
    my %letter = (t => "\t", n => "\n", r => "\r", '\\' => '\\');
    open my $input, '<:raw', $file or fail("$file: cannot open: $!");
    chomp(my @lines = <$input>);
    my @columns = split /\t/, shift @lines;
    for my $column (@needed) {
        next if grep { $_ eq $column } @columns;
        fail("$file: has no column $column; it has @columns");
    }
    my @rows;
    for (@lines) {
        my @cells = map { s/\\([tnr\\])/$letter{$1}/gr } split /\t/, $_, -1;
        fail("$file: line ", @rows + 2, ': ', scalar @cells, ' columns, expected ', scalar @columns)
            if @cells != @columns;
        my %row;
        @row{@columns} = @cells;
        push @rows, \%row;
    }
    return @rows;
}

# Those of a table's rows that can be drawn: X and Y have a value of this kind, "number" or "positive number".
sub drawn_rows {
    my ($file, $x, $y, $kind, @rows) = @_;
    my $number = qr/^[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?$/;
    my $is_drawn = sub { $_[0] =~ $number && ($kind eq 'number' || $_[0] > 0) };
    my @drawn = grep { $is_drawn->($_->{$x}) && $is_drawn->($_->{$y}) } @rows;
    my $left_out = @rows - @drawn;
    fail("$file: no row has ${kind}s in the columns $x and $y") if !@drawn;
    note("$file: left out $left_out row", $left_out == 1 ? '' : 's', " without a $kind in $x or $y")
        if $left_out;
    return @drawn;
}

# Frame, grid and legend.
sub print_frame {
    my ($entries) = @_;
    print "set border 3 lc rgb '#606060'\nset tics nomirror out scale 0.6\n";
    print "set grid x y lc rgb '#E0E0E0' lt 1 lw 0.7\n";
    # Beside the curves, never upon them: below in columns, or on the right when they are many.
    print $entries > 16 ? "set key outside right top" : "set key bmargin center horizontal";
    print " Left reverse samplen 3 spacing 1.2 width 2 height 0.6 noautotitle\n";
}

# A named block of points; an undefined point breaks the line.
sub print_points {
    my ($name, @points) = @_;
    print "\$$name << END_OF_POINTS\n";
    print defined $_->[1] ? "$_->[0] $_->[1]\n" : "\n" for @points;
    print "END_OF_POINTS\n";
}

1;
