//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestImageGC_DeletesFromHighToLowThreshold has images that may be deleted, one image of each
// kind that must be kept, and one image whose removal always fails.
func TestImageGC_DeletesFromHighToLowThreshold(t *testing.T) {
	t.Parallel()
	const images = 6
	b := newSmallBed(t, 640)
	for i := range images {
		b.addImage(fmt.Sprintf("kubeparts.test/ballast:%d", i), 20)
	}
	b.addImage("kubeparts.test/pinned:1", 5)
	b.addImage("kubeparts.test/used:1", 5)
	b.ctrImages("label", "kubeparts.test/pinned:1", "io.cri-containerd.pinned=pinned")
	b.ctrImages("tag", "kubeparts.test/used:1", "kubeparts.test/used:too")
	b.ctrImages("tag", "kubeparts.test/ballast:1", "kubeparts.test/ballast:one")
	stuck, err := b.images.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: "kubeparts.test/ballast:0"}})
	require.NoError(t, err)

	var mu sync.Mutex
	refused := 0
	p := startProxyTo(t, b.endpoint, func(method string, request []byte) (func(), error) {
		if method == "RemoveImage" && bytes.Contains(request, []byte(stuck.GetImage().GetId())) {
			mu.Lock()
			defer mu.Unlock()
			refused++
			return nil, errors.New("this one never goes")
		}
		return func() {}, nil
	})
	n := newNode(t)
	n.write("used.yaml", strings.ReplaceAll(web, imageServer, "kubeparts.test/used:too"))
	flags := []string{"--cri-endpoint", p.endpoint, "--take-over", "--minimum-image-ttl-duration", "1s"}
	n.start(append(flags, "--image-gc-high-threshold", "100", "--image-gc-low-threshold", "99")...)
	n.waitRunning("web")
	seen := n.root + "/images-seen.json"
	waitFor(t, startTimeout, "the ages of the images to be stored", func() (string, bool) {
		_, err := os.Stat(seen)
		return fmt.Sprint(err), err == nil
	})
	<-time.After(2 * time.Second) // until all images have reached the minimum age
	n.agent.stop(t)

	before := usedPercent(t, b.dir)
	high, low := before-3, before-15
	n.start(append(flags, "--image-gc-high-threshold", strconv.Itoa(high), "--image-gc-low-threshold", strconv.Itoa(low))...)
	waitFor(t, time.Minute, "images to be deleted", func() (string, bool) {
		return fmt.Sprint(usedPercent(t, b.dir), b.has()), usedPercent(t, b.dir) <= low
	})
	var has map[string]bool
	waitFor(t, startTimeout, "each image to have all of its names or none", func() (string, bool) {
		has = b.has()
		return fmt.Sprint(has), has["kubeparts.test/ballast:1"] == has["kubeparts.test/ballast:one"]
	})
	t.Logf("disk usage %d%% before, thresholds %d%% and %d%%, usage %d%% after; images left: %v", before, high, low, usedPercent(t, b.dir), has)
	for _, name := range []string{"pinned:1", "used:1", "used:too", "pause:1", "ballast:0"} {
		require.True(t, has["kubeparts.test/"+name], name)
	}
	mu.Lock()
	t.Logf("the failing removal was tried %d times", refused)
	require.LessOrEqual(t, refused, 3)
	mu.Unlock()
}

// TestImageGC_KeepsImageDuringPull delays the response of a pull, on a disk that is always too
// full: unused images are deleted every ten seconds. The pods are critical, so that they are
// admitted.
func TestImageGC_KeepsImageDuringPull(t *testing.T) {
	t.Parallel()
	b := newSmallBed(t, 400)
	b.addImage("kubeparts.test/ballast:0", 5)
	reclaims := 0
	n := newNode(t)
	p := startProxyTo(t, b.endpoint, func(method string, _ []byte) (func(), error) {
		if method != "PullImage" {
			return func() {}, nil
		}
		return func() {
			before := n.output.linesWith("could not free disk space, will evict pods if the node stays under pressure")
			<-time.After(25 * time.Second)
			reclaims = n.output.linesWith("could not free disk space, will evict pods if the node stays under pressure") - before
		}, nil
	})
	free := freeBytes(t, b.dir)
	n.write("pulled.yaml", strings.NewReplacer("name: web", "name: pulled", imageServer, imagePulled,
		"spec:", "spec:\n  priority: 2000001000").Replace(web))
	n.start("--cri-endpoint", p.endpoint, "--take-over", "--minimum-image-ttl-duration", "1s", "--image-gc-high-threshold", "100",
		"--eviction-hard", fmt.Sprintf("imagefs.available<%dMi", free/mebi+500))
	n.waitPod(time.Minute, "pulled", "to run", running)
	require.Equal(t, 1, p.counts()["PullImage"])
	require.Positive(t, reclaims, "no image was removed during the pull")
	require.False(t, b.has()["kubeparts.test/ballast:0"], "the unused image must be deleted")
	t.Logf("%d reclaims during the pull", reclaims)
}

func usedPercent(t *testing.T, dir string) int {
	t.Helper()
	s := statfs(t, dir)
	return 100 - int(s.Bavail*100/s.Blocks)
}

// TestLogRotation_LosesNoLineUnderLoad runs a container that writes about 50 MB per
// second, at full speed and with pauses, during several rotations.
func TestLogRotation_LosesNoLineUnderLoad(t *testing.T) {
	const rounds, lines = 40, 40 * 90_000
	n := newNode(t)
	n.start("--container-log-max-size", "20Mi", "--container-log-max-files", "50")
	width := strings.Repeat("x", 500)
	began := time.Now()
	n.write("flood.yaml", shellPod("flood", fmt.Sprintf(
		`i=0; while [ $i -lt %d ]; do seq $((i*%d+1)) $((i*%d+%d)) | sed "s/$/ %s/"; i=$((i+1)); sleep 0.5; done; exec sleep 1000`,
		rounds, lines/rounds, lines/rounds, lines/rounds, width), ""))
	pod := n.waitRunning("flood")
	dir := filepath.Dir(n.logFile(pod, "main", 0))
	waitFor(t, 4*time.Minute, "the last line", func() (string, bool) {
		files := logsInOrder(t, dir)
		// The rotation may already have renamed the last file, and the container writes no
		// more lines.
		return fmt.Sprint(files), slices.ContainsFunc(files[max(0, len(files)-2):], func(file string) bool { return lastNumber(file) == lines })
	})
	took := time.Since(began)
	n.agent.stop(t) // no file may be renamed while the test reads the logs
	files := logsInOrder(t, dir)
	require.Greater(t, len(files), 2, "the log was not rotated")
	next, line := 1, strings.Builder{}
	for _, file := range files {
		next = countLines(t, file, next, &line)
	}
	require.Equal(t, lines+1, next)
	t.Logf("%.0f MB in %v, %.1f MB/s, in %d files", float64(lines)*550/1e6, took.Round(time.Second), float64(lines)*550/1e6/took.Seconds(), len(files))
}

// logsInOrder returns the files of a container's log, oldest first.
func logsInOrder(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(dir + "/*")
	require.NoError(t, err)
	files = slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, ".tmp") })
	slices.Sort(files) // sorts 0.log first, then the rotated files by time
	if len(files) == 0 {
		return nil
	}
	return append(files[1:], files[0])
}

// lastNumber returns the number in the last line of a log, 0 if the log is empty.
func lastNumber(file string) int {
	f, err := os.Open(file)
	if err != nil {
		return 0
	}
	defer f.Close()
	_, _ = f.Seek(-700, io.SeekEnd)
	tail, _ := io.ReadAll(f)
	all := bytes.Split(bytes.TrimSpace(tail), []byte("\n"))
	fields := strings.Fields(string(all[len(all)-1]))
	if len(fields) < 5 {
		return 0
	}
	number, _ := strconv.Atoi(fields[3])
	return number
}

// countLines checks that the lines have consecutive numbers from next on, and returns the
// following number. line is the incomplete last line: the runtime writes some lines in parts,
// and a rotation can happen in between.
func countLines(t *testing.T, file string, next int, line *strings.Builder) int {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	var in io.Reader = f
	if strings.HasSuffix(file, ".gz") {
		in, err = gzip.NewReader(f)
		require.NoError(t, err)
	}
	scan := bufio.NewScanner(in)
	for scan.Scan() {
		fields := strings.SplitN(scan.Text(), " ", 4)
		require.Len(t, fields, 4, scan.Text())
		line.WriteString(fields[3])
		if fields[2] == "P" {
			continue
		}
		number, _, _ := strings.Cut(line.String(), " ")
		if number != strconv.Itoa(next) {
			require.Failf(t, "a line is missing or duplicated", "%s: %.80s instead of %d", file, line.String(), next)
		}
		line.Reset()
		next++
	}
	require.NoError(t, scan.Err())
	return next
}

// TestContainerGC_RemovesDeadContainersWhilePodsStart creates pods with many dead containers whose
// names are not in the manifests.
func TestContainerGC_RemovesDeadContainersWhilePodsStart(t *testing.T) {
	const pods, perPod, starts = 10, 50, 5
	n := newNode(t)
	n.start()
	began := time.Now()
	n.write("alone.yaml", strings.ReplaceAll(web, "name: web", "name: alone"))
	n.waitRunning("alone")
	alone := time.Since(began)
	var keep []*corev1.Pod
	for i := range pods {
		n.write(fmt.Sprintf("keep%d.yaml", i), strings.ReplaceAll(web, "name: web", fmt.Sprintf("name: keep%d", i)))
	}
	for i := range pods {
		keep = append(keep, n.waitRunning(fmt.Sprintf("keep%d", i)))
	}
	n.agent.stop(t)
	began = time.Now()
	n.leaveDead(keep, perPod)
	require.Equal(t, pods*perPod, n.ghosts())
	t.Logf("%d containers created and exited in %v", pods*perPod, time.Since(began).Round(time.Second))

	n.start()
	began = time.Now()
	var slowest time.Duration
	for i := range starts {
		name := fmt.Sprintf("new%d", i)
		at := time.Now()
		n.write(name+".yaml", strings.ReplaceAll(web, "name: web", "name: "+name))
		n.waitRunning(name)
		slowest = max(slowest, time.Since(at))
	}
	gone := pods*perPod - n.ghosts()
	waitFor(t, 2*time.Minute, "the exited containers to be removed", func() (string, bool) {
		left := n.ghosts()
		return fmt.Sprint(left), left == 0
	})
	t.Logf("%d dead containers were removed %v after the agent's start, %d of them while %d pods started: the slowest pod needed %v, a pod before that %v",
		pods*perPod, time.Since(began).Round(100*time.Millisecond), gone, starts, slowest.Round(10*time.Millisecond), alone.Round(10*time.Millisecond))
	for _, pod := range keep {
		live := slices.DeleteFunc(bed.instances(t, podLabels(pod)), func(i instance) bool { return !i.running() })
		require.Len(t, live, 1)
		require.Equal(t, "0", live[0].Restarts)
	}
}

// ghosts returns how many of the dead containers are left.
func (n *node) ghosts() int {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), callTimeout)
	defer cancel()
	list, err := bed.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{labelAgent: n.name, labelContainerName: "ghost"},
	}})
	require.NoError(n.t, err)
	return len(list.GetContainers())
}

// leaveDead creates perPod containers in the sandbox of each pod, and waits until they have
// exited.
func (n *node) leaveDead(pods []*corev1.Pod, perPod int) {
	n.t.Helper()
	const atOnce = 6
	ctx, cancel := context.WithTimeout(n.t.Context(), 3*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	jobs, errs := make(chan func() error), make(chan error, len(pods)*perPod)
	for range atOnce {
		all.Go(func() {
			for job := range jobs {
				errs <- job()
			}
		})
	}
	for _, pod := range pods {
		sandbox := bed.instances(n.t, podLabels(pod))[0].Sandbox
		status, err := bed.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox})
		require.NoError(n.t, err)
		box := status.GetStatus()
		config := &runtimeapi.PodSandboxConfig{
			Metadata: box.GetMetadata(), Labels: box.GetLabels(), Annotations: box.GetAnnotations(),
			LogDirectory: filepath.Dir(filepath.Dir(n.logFile(pod, "ghost", 0))), Linux: &runtimeapi.LinuxPodSandboxConfig{},
		}
		// A regular file in the place of a directory makes the log path invalid.
		noLog := pod.Spec.Containers[0].Name + "/0.log/ghost.log"
		for attempt := range perPod {
			jobs <- func() error { return leaveOne(ctx, sandbox, config, attempt, noLog) }
		}
	}
	close(jobs)
	all.Wait()
	close(errs)
	for err := range errs {
		require.NoError(n.t, err)
	}
}

// leaveOne creates a container that exits at once. Only the first starts. The others fail
// because their log paths are invalid, which leaves dead containers in a tenth of the time.
func leaveOne(ctx context.Context, sandbox string, config *runtimeapi.PodSandboxConfig, attempt int, noLog string) error {
	labels := map[string]string{labelContainerName: "ghost"}
	for _, l := range []string{labelAgent, labelPodName, labelPodNamespace, labelPodUID} {
		labels[l] = config.GetLabels()[l]
	}
	log, fails := "", attempt > 0
	if fails {
		log = noLog
	}
	c, err := bed.runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox, SandboxConfig: config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "ghost", Attempt: uint32(attempt)},
			Image:    &runtimeapi.ImageSpec{Image: imageServer}, Args: []string{"exit", "0"}, LogPath: log,
			Labels: labels, Annotations: map[string]string{annotationRestarts: strconv.Itoa(attempt)},
			Linux: &runtimeapi.LinuxContainerConfig{},
		},
	})
	if err != nil {
		return err
	}
	_, err = bed.runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.GetContainerId()})
	if fails && err == nil {
		return errors.New("a container without a log has begun")
	}
	if fails {
		return nil
	}
	return err
}
