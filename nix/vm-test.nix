# Test in a virtual machine with sch_netem and without network, as an ordinary user with the README's commands: a smoke campaign
# in Chromium by `reproduce`, curl on a link, and BIND and Knot Resolver found by `discover`.
{
  command,
  env,
  reproduce,
  testers,
}:
testers.runNixOSTest {
  name = "crosslayer-smoke";

  nodes.machine =
    { pkgs, ... }:
    {
      # A process in a user namespace cannot load kernel modules.
      boot.kernelModules = [
        "bridge"
        "sch_netem"
        "veth"
      ];
      environment.systemPackages = [
        command
        pkgs.curl
        reproduce
      ];
      users.users.reviewer.isNormalUser = true;
      virtualisation = {
        cores = 2;
        diskSize = 4096; # MiB
        memorySize = 4096; # MiB
      };
    };

  testScript = ''
    def as_reviewer(command: str, timeout: int = 120) -> str:
        return machine.succeed(f"su --login reviewer --command '{command}' 2>&1", timeout=timeout)


    machine.wait_for_unit("multi-user.target")
    print(as_reviewer("crosslayer doctor"))

    # The private namespaces contain /run/current-system, which has curl.
    page = as_reviewer('crosslayer link dsl -- curl --silent --cacert "\\$CROSSLAYER_CA" https://www.example.org/')
    assert "</html>" in page.lower(), page

    matrix = as_reviewer("crosslayer discover bind9 knot-resolver --json", timeout=300)
    assert "bind9" in matrix and "knot-resolver" in matrix, matrix

    said = as_reviewer("mkdir work && cd work && crosslayer-reproduce -p size smoke", timeout=1800)
    assert "over the netem of its kernel" in said, said
    as_reviewer("${env}/bin/python ${../tests/vm/check_smoke_campaign.py} work/data/local/coalescing-smoke")
    assert int(as_reviewer("grep --count --fixed-strings \"<figure\" work/build/figures/coalescing/index.html")) > 10
  '';
}
