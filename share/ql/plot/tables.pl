#!/usr/bin/perl
# Tables of qleval and of share/repro for gnuplot: tables.pl X Y WHERE -- TABLE...
#
# A line for the rows of every model, data, lengths and way of measuring, by the column X. WHERE is empty, or
# COLUMN=VALUE for the rows that are drawn. An empty X or Y is
# the first column of those below that all tables have. Seeds of one network have one colour and one name.
use strict;
use warnings;
use FindBin;
require "$FindBin::Bin/drawing.pl";

my ($x, $y, $where, undef, @files) = @ARGV;
my ($column, $value) = $where =~ /^([^=]*)=(.*)/s;
my %has;
for my $file (@files) {
    open my $input, '<:raw', $file or fail("$file: cannot open: $!");
    chomp(my $header = <$input>);
    ++$has{$_} for split /\t/, $header;
}
# The first of these columns that all tables have.
sub column_of_all {
    my ($column) = grep { ($has{$_} // 0) == @files } @_;
    return $column // $_[0];
}
fail('tables with and without the column checkpoint do not go into one picture')
    if $has{checkpoint} && $has{checkpoint} < @files;
$x = column_of_all(qw(memory step to context)) if $x eq '';
$y = column_of_all(qw(perplexity gain)) if $y eq '';

my $model = $has{checkpoint} ? 'checkpoint' : 'network';
my %label = (
    segment => 'segment (tokens)',
    memory => 'memory (states)',
    compressed_memory => 'compressed memory (states)',
    context => $model eq 'network' ? 'context (tokens)' : 'context length (tokens, mean by the paper\'s formula)',
    context_min => 'context length (tokens, shortest)',
    context_max => 'context length (tokens, longest)',
    epoch => 'epochs of the training text',
    to => 'place after the reset of the memory (tokens)',
    gain => 'gain of one step more (a part of the perplexity)',
);

# Short names of the values of a column: paths without the "best" that all of them may end in.
sub names_of {
    my %path = map { $_ => [grep { $_ ne '' } split m{/}] } @_;
    my @values = sort keys %path;
    my %seen;
    my @stems = map { join '/', grep { $_ ne '' } split m{/}, s{/(?:best|last)/*\z}{}r } @values;
    if (@values == grep { !$seen{$_}++ } @stems) {
        $path{$values[$_]} = [split m{/}, $stems[$_]] for 0 .. $#values;
    }
    my %name;
    @name{@values} = short_names(@path{@values});
    return \%name;
}

my @rows;
for my $file (@files) {
    my @of_table = rows_of($file, $x, $y, $column // ());
    @of_table = grep { $_->{$column} eq $value } @of_table if defined $column;
    fail("$file: no row has $where") if !@of_table;
    my @drawn = drawn_rows($file, $x, $y, 'number', @of_table);
    # Networks of one name in two tables are not the same.
    for (@drawn) { $_->{data} //= $file if @files > 1 }
    push @rows, @drawn;
}
# Along a line only X changes; the memory does, too, where the context is X.
my @lengths = $x =~ /^context/ ? 'segment' : qw(segment memory compressed_memory);
# The other columns that make two rows different measurements. In tables of share/repro the seed says all.
my @measured = grep { $_ ne $x } qw(data ratio), @lengths,
    $model eq 'checkpoint' ? qw(stride reset precision group) : ();
my (%lines, @order);
for my $row (@rows) {
    my $line = join "\t", map { $row->{$_} // '-' } $model, 'seed', @measured;
    push @order, $line if !$lines{$line};
    push @{$lines{$line}}, $row;
}

# A line is named by the columns in which it differs from the others.
my @keys = ($model, grep {
    my $key = $_;
    my %values = map { ($lines{$_}[0]{$key} // '-') => 1 } @order;
    keys %values > 1
} @measured);
my %names;
for my $key (qw(checkpoint data)) {
    $names{$key} = names_of(map { $_->{$key} // '-' } @rows);
}
my %name_of = map {
    my $row = $lines{$_}[0];
    $_ => join ', ', map {
        my $value = $row->{$_} // '-';
        $_ eq 'network' ? $value : $names{$_} ? $names{$_}{$value} : (tr/_/ /r) . " $value"
    } @keys
} @order;

my @xs = map { $_->{$x} } @rows;
my @ys = map { $_->{$y} } @rows;
my %entries = map { $_ => 1 } values %name_of;
print_frame(scalar keys %entries);
printf "set xlabel %s\nset ylabel %s\n", quoted($label{$x} // $x), quoted($label{$y} // ($y =~ tr/_/ /r));
if ($x !~ /^(?:step|epoch)\z/ && least(@xs) > 0 && most(@xs) / least(@xs) >= 16) {
    # Lengths are few and mostly doubled: each gets a label.
    my %places = map { $_ + 0 => 1 } @xs;
    my @places = sort { $a <=> $b } keys %places;
    print "set logscale x 2\n";
    printf "set xtics (%s)\n", join ', ', @places if @places <= 12 && $x !~ /^context/;
    printf "set xrange [%g:%g]\n", least(@xs) / 1.1, most(@xs) * 1.1;
} else {
    my $room = 0.03 * (most(@xs) - least(@xs)) || 1;
    printf "set xrange [%.9g:%.9g]\n", least(@xs) - $room, most(@xs) + $room;
}
if (least(@ys) > 0 && most(@ys) / least(@ys) >= 4) {
    print "set logscale y\n";
    printf "set ytics (%s)\n", join ', ', tics(least(@ys) / 1.2, most(@ys) * 1.2);
    printf "set yrange [%g:%g]\n", least(@ys) / 1.2, most(@ys) * 1.2;
}

# A colour for every name, with other dashes when all are in use. Where there are more names than colours,
# a colour for every model, and dashes for the rest of the name.
sub place_in {
    my ($places, $value) = @_;
    my $next = keys %$places;
    return $places->{$value} //= $next;
}
my $by_model = keys %entries > colours() && @keys > 1;
my (@plots, %first, %colours, %dashes);
for my $i (0 .. $#order) {
    my ($row, $name) = ($lines{$order[$i]}[0], $name_of{$order[$i]});
    my $rest = join "\t", map { $row->{$_} // '-' } @keys[1 .. $#keys];
    my $colour = place_in(\%colours, $by_model ? $row->{$model} : $name);
    my $dash = $by_model ? place_in(\%dashes, $rest) : int($colour / colours());
    print_points("line$i", sort { $a->[0] <=> $b->[0] } map { [$_->{$x}, $_->{$y}] } @{$lines{$order[$i]}});
    push @plots, sprintf "\$line$i with linespoints pt 7 ps 0.8 lw 2 dt %d lc rgb '%s' %s", $dash + 1,
        colour($colour), $first{$name}++ ? 'notitle' : 'title ' . quoted($name);
}
print 'plot ', join(", \\\n  ", @plots), "\n";
