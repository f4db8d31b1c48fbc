# A machine with sch_netem measures a smoke campaign in Chromium as an ordinary user, without network.
{
  command,
  env,
  testers,
}:
testers.runNixOSTest {
  name = "crosslayer-smoke";

  nodes.machine = {
    # An ordinary user's namespace cannot load modules.
    boot.kernelModules = [
      "bridge"
      "sch_netem"
      "veth"
    ];
    environment.systemPackages = [ command ];
    users.users.reviewer.isNormalUser = true;
    virtualisation = {
      cores = 2;
      diskSize = 2048; # MiB
      memorySize = 4096; # MiB
    };
  };

  testScript = ''
    def as_reviewer(command: str, timeout: int = 120) -> str:
        return machine.succeed(f"su --login reviewer --command '{command}' 2>&1", timeout=timeout)


    machine.wait_for_unit("multi-user.target")
    print(as_reviewer("crosslayer doctor"))
    print(as_reviewer("crosslayer measure --profile smoke --backend netem --out smoke", timeout=1200))
    print(as_reviewer("${env}/bin/python ${../tests/vm/check_smoke_campaign.py} smoke"))
  '';
}
