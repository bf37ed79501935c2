package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// timeStart starts a plugin some times, each before a new kubelet, and prints how long after its start it had registered
// and its first list was here.
func timeStart(arguments []string) error {
	flags := flag.NewFlagSet("start", flag.ExitOnError)
	folder := flags.String("folder", "", "the plugin folder that the command is told of")
	starts := flags.Int("n", 5, "how often")
	flags.Parse(arguments)
	for range *starts {
		taken, err := oneStart(*folder, flags.Args())
		if err != nil {
			return err
		}
		say(taken)
	}
	return nil
}

func oneStart(folder string, command []string) (row, error) {
	events := make(chan row, 64)
	kubelet, err := serve(folder, func(what row) { events <- what })
	if err != nil {
		return nil, err
	}
	defer kubelet.stop()
	plugin := exec.Command(command[0], command[1:]...)
	plugin.Stdout, plugin.Stderr = os.Stderr, os.Stderr
	begin := now()
	if err := plugin.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- plugin.Wait() }()
	limit := time.After(time.Minute)
	taken := row{}
	for taken["list_ms"] == nil {
		select {
		case what := <-events:
			if kind := what["event"].(string); kind == "registered" || kind == "list" {
				taken[kind+"_ms"] = float64(what["ns"].(int64)-begin) / 1e6
				taken["response"] = what["response"]
			}
		case err := <-ended:
			return nil, fmt.Errorf("%v ended before it had registered: %v", command, err)
		case <-limit:
			plugin.Process.Kill()
			return nil, fmt.Errorf("%v did not register within a minute: %v", command, <-ended)
		}
	}
	if err := plugin.Process.Signal(syscall.SIGTERM); err != nil {
		return nil, err
	}
	return taken, <-ended
}
