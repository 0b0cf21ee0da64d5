#!/usr/bin/perl
# The course of trainings for gnuplot: logs.pl steps|tokens|hours -- LOG...
#
# The loss is drawn in a straight scale. The axis on the left has the perplexity at its places, which
# is a logarithmic scale; or the loss in bits, where each token is a character or a byte.
use strict;
use warnings;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use FindBin;
use JSON::PP;
require "$FindBin::Bin/drawing.pl";

my ($x, undef, @files) = @ARGV;
my $json = JSON::PP->new->utf8;

sub slurp {
    my ($file) = @_;
    open my $input, '<:raw', $file or fail("$file: cannot open: $!");
    local $/;
    return scalar <$input>;
}

# Batch and segment of this training, from the description in its checkpoints.
sub batch_and_segment {
    my ($log) = @_;
    for my $checkpoint (qw(last best)) {
        my $file = dirname($log) . "/$checkpoint/model.json";
        next if !-e $file;
        my $model = eval { $json->decode(slurp($file)) } or fail("$file: is not JSON");
        my ($batch, $segment) = ($model->{training}{batch} // 0, $model->{network}{segment} // 0);
        fail("$file: has no batch and segment, which --x tokens needs") if $batch * $segment <= 0;
        return ($batch, $segment);
    }
    fail(dirname($log), ": has no checkpoint that records the tokens of a step, which --x tokens needs");
}

# The number of records with each of the keys bits_per_character and bits_per_byte, and of all.
my (%with_bits, $records);

# The curves of a log: kind => [[x, loss], ...]. A last line that is being written is left out.
sub read_log {
    my ($file) = @_;
    my ($batch, $segment) = $x eq 'tokens' ? batch_and_segment($file) : ();
    my ($step, $tokens) = (0, 0);
    my (%curves, $number);
    for my $line (split /^/, slurp($file)) {
        $number++;
        last if $line !~ /\n\z/;
        my $record = eval { $json->decode($line) };
        my $is_record = ref $record eq 'HASH' && defined $record->{kind};
        next if $is_record && $record->{kind} !~ /^(?:train|validation)$/;
        fail("$file: line $number: is not a record of a training")
            if !$is_record || grep { !defined $record->{$_} } qw(step elapsed);
        if ($x eq 'tokens') {
            # A resume may change the batch.
            $batch = $record->{batch} // $batch;
            $tokens += ($record->{step} - $step) * $batch * $segment;
            $step = $record->{step};
        }
        my $at = $x eq 'hours' ? $record->{elapsed} / 3600 : $x eq 'tokens' ? $tokens : $record->{step};
        push @{$curves{$record->{kind}}}, [$at, $record->{loss}];
        $records++;
        for my $unit (qw(character byte)) { $with_bits{$unit}++ if exists $record->{"bits_per_$unit"} }
    }
    fail("$file: has no records of training or validation yet") if !%curves;
    return \%curves;
}

# Names after the folders of the logs; a log of another name is named by that.
sub path_of {
    my ($file) = @_;
    my @parts = split m{/}, abs_path($file);
    my $name = pop @parts;
    push @parts, $name =~ s/\.[^.]*\z//r if $name ne 'log.jsonl';
    return [@parts];
}

my @names = short_names(map { path_of($_) } @files);
my @runs = map { read_log($_) } @files;
my @points = map { @{$_->{train} // []}, @{$_->{validation} // []} } @runs;
my @losses = grep { defined } map { $_->[1] } @points;
fail('no loss is a finite number') if !@losses;

# Some room above and below, also when all losses are the same.
my ($low, $high) = (least(@losses), most(@losses));
my $room = 0.04 * ($high - $low) || 0.1;
($low, $high) = ($low - $room, $high + $room);
my $furthest = most(map { $_->[0] } @points);

# Numbers of at most four digits at the axis.
my ($unit, $in) = (1, '');
for ([1e9, 'billions'], [1e6, 'millions'], [1e3, 'thousands']) {
    ($unit, $in) = ($_->[0], " ($_->[1])") if $unit == 1 && $furthest >= 10 * $_->[0];
}
my %label = (steps => 'steps', tokens => 'tokens read', hours => 'hours of training');

print_frame(2 * @runs);
print "set border 11\n";
printf "set xlabel %s\n", quoted($label{$x} . $in);
# With the digits of the points: one beyond the range would not be drawn.
print 'set xrange [0:', ($furthest || 1) / $unit, "]\n";
my ($bits_of) = grep { ($with_bits{$_} // 0) == $records } qw(character byte);
my $nats = $bits_of ? log 2 : 1;  # of a step of the axis on the left
printf "set y2label 'loss'\nset yrange [%.15g:%.15g]\n", $low / $nats, $high / $nats;
print "set y2range [$low:$high]\nset y2tics\n";
if ($bits_of) {
    print "set ylabel 'bits per $bits_of'\n";
} elsif ($high < 700) {
    print "set ylabel 'perplexity'\n";
    printf "set ytics (%s)\n", join ', ', map { sprintf "'%.6g' %.9g", $_, log $_ } tics(exp $low, exp $high);
} else {
    # The perplexity of a training that diverged may not be a number.
    print "unset ytics\n";
}

my (@training, @validation);
for my $i (0 .. $#runs) {
    for my $kind (qw(train validation)) {
        my @curve = map { [$_->[0] / $unit, defined $_->[1] ? $_->[1] / $nats : undef] } @{$runs[$i]{$kind} // []};
        next if !@curve;
        print_points("$kind$i", @curve);
        # Points are drawn where there is room for them; a single one would not be a line at all.
        my $style = @curve <= 40 ? 'linespoints pt 7 ps 0.5' : 'lines';
        if ($kind eq 'train') {
            push @training, sprintf "\$train$i with $style lw 1.2 lc rgb '%s' title %s", pale_colour($i),
                quoted("$names[$i], training");
        } else {
            push @validation, sprintf "\$validation$i with $style lw 2 lc rgb '%s' title %s", colour($i),
                quoted("$names[$i], validation");
        }
    }
}
print 'plot ', join(", \\\n  ", @training, @validation), "\n";
