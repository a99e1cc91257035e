package main

import "github.com/kubeparts/kubeparts/fakecri"

// demoNode is the embedded runtime: it has the sample pods' images, makes up any
// other that is asked for, and writes logs where a runtime does.
func demoNode() fakecri.Config {
	return fakecri.Config{
		Images:    fakecri.DemoImages(),
		Programs:  fakecri.DemoPrograms(),
		PullAny:   true,
		WriteLogs: true,
	}
}
