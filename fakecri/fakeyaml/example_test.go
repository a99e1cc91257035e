package fakeyaml_test

import (
	"context"
	"fmt"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/fakecri/fakeyaml"
)

func ExampleParse() {
	cfg, err := fakeyaml.Parse([]byte(`
registry:
- {name: demo/web:1, sizeBytes: 5Mi}
programs:
  demo/web:1: {termDelay: 2s}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	cfg.Seed = 7 // what a file does not say
	node, err := fakecri.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	images, err := node.ListImages(context.Background(), nil)
	fmt.Println(len(images), err)

	_, err = fakeyaml.Parse([]byte("programs:\n  demo/web:1: {termDelay: soon, colour: red}\n"))
	fmt.Println(err)
	// Output:
	// 0 <nil>
	// fakeyaml: programs["demo/web:1"].colour: unknown field, there are cpuMilli, crashes, disk, exec, exitCode, healthyAfter, ignoreTerm, inodes, log, logInterval, memory, oomKilled, ports, runtime, startError, termDelay, termExitCode
	// programs["demo/web:1"].termDelay: soon is no duration, such as 500ms or 1m30s
}
