# What each program in ../bin is: it hands its call to the agent of its node, and the agent's answer to its caller.
# The socket's name is in the network namespace of the node. To the agent: the plugin's name and CNI's variables, each
# with a NUL behind it, then the standard input. From it: the exit status, a newline, the standard output.
# It loads no module, for that would take longer than all the rest.

my ($name) = $0 =~ m{([^/]+)$};
my $command = $ENV{CNI_COMMAND} // "";
if ($command eq "VERSION") {
    print '{"cniVersion": "1.1.0", "supportedVersions": ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]}';
    exit 0;
}
local $/;
my $config = <STDIN> // "";

sub fail {
    my ($version) = $config =~ /"cniVersion"\s*:\s*"([\d.]+)"/;
    my $code = $command eq "STATUS" ? 50 : 11;
    printf '{"cniVersion": "%s", "code": %d, "msg": "the agent of this node does not answer", "details": "%s"}',
        $version // "1.0.0", $code, $_[0];
    exit 1;
}

my ($unix, $stream, $write) = (1, 1, 1);    # AF_UNIX, SOCK_STREAM, SHUT_WR of Linux
socket(my $agent, $unix, $stream, 0) or fail("$!");
connect($agent, pack("S a*", $unix, "\0testbed-cni")) or fail("$!");
my @variables = map { $ENV{"CNI_$_"} // "" } qw(COMMAND CONTAINERID NETNS ARGS IFNAME PATH);
my $request = join("", map { "$_\0" } $name, @variables) . $config;
while (length $request) {
    my $count = syswrite($agent, $request) or fail("$!");
    substr($request, 0, $count) = "";
}
shutdown($agent, $write);
my ($status, $output) = split /\n/, <$agent> // "", 2;
fail("it ended") unless defined $output;
print $output;
exit $status;
