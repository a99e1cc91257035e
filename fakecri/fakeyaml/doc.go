// Package fakeyaml reads what a node of package fakecri is like from YAML.
//
// # What it does
//
// [Parse] makes a [fakecri.Config] of a document, so that a demo or an
// end-to-end test can be changed without being compiled. The fields have the
// names of the Go fields, in lower camel case; times are durations such as 1m30s,
// and sizes are numbers of bytes with a suffix such as Mi, if wanted:
//
//	images:
//	- name: demo/web:1
//	  tags: [demo/web:latest]
//	  user: "1000"
//	  pinned: true
//	  layers:                    # or sizeBytes
//	  - {name: base, sizeBytes: 30Mi}
//	  - {name: web, sizeBytes: 5Mi}
//	registry:
//	- name: demo/job:1
//	  sizeBytes: 10Mi
//	  pull: {delay: 1s, bytesPerSecond: 5Mi, username: me, password: secret}
//	- name: demo/gone:1
//	  pull: {error: "manifest unknown"}
//	pullAny: false
//	disk: {capacityBytes: 20Gi, inodes: 100000}
//	programs:
//	  demo/web:1:
//	    healthyAfter: 5s
//	    ports:
//	    - {number: 8080, protocol: http, paths: {/broken: 500}}
//	    termDelay: 2s            # or ignoreTerm: true
//	    termExitCode: 0
//	    cpuMilli: 250
//	    memory: {start: 10Mi, perSecond: 1Mi, max: 64Mi}
//	    disk: {perSecond: 4Ki}
//	    inodes: {perSecond: 1}
//	    log: ["still here"]
//	    logInterval: 10s
//	    exec:
//	      cat /ready: {stdout: "yes", health: true}
//	      sleep 5: {runtime: 5s, exitCode: 0, stderr: ""}
//	  demo/web:1 migrate:        # what it does with that command
//	    startError: no such file
//	  demo/job:1:
//	    runtime: 30s             # with exitCode, oomKilled and crashes
//
// # What you supply
//
// The document, and what a file cannot say: put the clock, the logger, Listen and
// so on into the Config that is returned.
//
// # What it guarantees
//
//  1. Decoding is strict: a field that is not known, a key that is there twice and
//     a value of the wrong kind are errors.
//  2. All errors are reported at once, joined, each with the path of what it is
//     about; those of [fakecri.Config.Validate] are among them. With an error
//     the Config is empty.
//  3. No document makes it panic.
//
// # Goroutines and locking
//
// Parse is a pure function.
//
// # Differences from Kubernetes' quantities
//
// Sizes are whole numbers with one of the suffixes k, M, G, T, Ki, Mi, Gi and Ti.
//
// # Testing your code with it
//
// See the example of [Parse].
package fakeyaml
