package main

import (
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/kubeparts/kubeparts/containergc/logrotate"
	"github.com/kubeparts/kubeparts/eviction"
)

// limits is what the command line says of when to free what, in the kubelet's flags.
type limits struct {
	settings   eviction.ThresholdSettings
	thresholds []eviction.Threshold
	transition time.Duration
	maxGrace   int

	imageHigh, imageLow       int
	imageMinAge               time.Duration
	deadPerContainer, deadAll int

	logSize  string
	logBytes int64
	logFiles int
}

func (l *limits) register(flags *flag.FlagSet) {
	pairs := func(into *map[string]string, parse func(string) (map[string]string, error), name, usage string) {
		flags.Func(name, usage, func(text string) (err error) {
			*into, err = parse(text)
			return err
		})
	}
	s := &l.settings
	pairs(&s.EvictionHard, eviction.ParseThresholdFlag, "eviction-hard", "evict pods when less than this is available, such as memory.available<100Mi,nodefs.available<10%; empty: never (default: the kubelet's)")
	pairs(&s.EvictionSoft, eviction.ParseThresholdFlag, "eviction-soft", "the same, when it was so for a while: see --eviction-soft-grace-period")
	pairs(&s.EvictionSoftGracePeriod, eviction.ParseSettingFlag, "eviction-soft-grace-period", "for how long, such as memory.available=1m30s")
	pairs(&s.EvictionMinimumReclaim, eviction.ParseSettingFlag, "eviction-minimum-reclaim", "how much more than the threshold is to be available then, such as imagefs.available=2Gi")
	flags.DurationVar(&l.transition, "eviction-pressure-transition-period", 5*time.Minute, "how long the node counts as short of something after it was")
	flags.IntVar(&l.maxGrace, "eviction-max-pod-grace-period", 0, "seconds that a pod has to end in an eviction for --eviction-soft; -1: its own")
	flags.IntVar(&l.imageHigh, "image-gc-high-threshold", 85, "percent of the images' disk in use from which on unused images are removed")
	flags.IntVar(&l.imageLow, "image-gc-low-threshold", 80, "percent of it down to which they are")
	flags.DurationVar(&l.imageMinAge, "minimum-image-ttl-duration", 2*time.Minute, "how long an image stays at least")
	flags.IntVar(&l.deadPerContainer, "maximum-dead-containers-per-container", 1, "how many ended instances of a container are kept; -1: all")
	flags.IntVar(&l.deadAll, "maximum-dead-containers", -1, "how many ended containers are kept in all; -1: no limit")
	flags.StringVar(&l.logSize, "container-log-max-size", "10Mi", "size from which on a container's log is rotated; negative: never")
	flags.IntVar(&l.logFiles, "container-log-max-files", 5, "how many files there are of a container's log")
}

// complete reads what the flags mean. What managers refuse, they say themselves.
func (l *limits) complete() (err error) {
	var errs []error
	if l.thresholds, err = eviction.ParseThresholds(l.settings); err != nil {
		errs = append(errs, fmt.Errorf("eviction: %w", err))
	}
	if l.logBytes, err = logrotate.ParseMaxSize(l.logSize); err != nil {
		errs = append(errs, fmt.Errorf("--container-log-max-size: %w", err))
	}
	return errors.Join(errs...)
}
