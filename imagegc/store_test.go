package imagegc_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/imagegc"
)

func ages(n int) imagegc.Ages {
	return imagegc.Ages{SavedAt: ago(0), Images: map[string]imagegc.Age{
		hexA:           {FirstDetected: ago(n), LastUsed: ago(n - 1)},
		hexB + ",kata": {FirstDetected: ago(n)},
	}}
}

func TestAges_FileStaysReadable(t *testing.T) {
	dir := t.TempDir()
	f := state.Files(dir)
	got, err := imagegc.LoadAges(t.Context(), f)
	require.NoError(t, err)
	require.Empty(t, got, "the file does not exist")
	for n := range 3 {
		require.NoError(t, imagegc.SaveAges(t.Context(), f, ages(n)))
		got, err = imagegc.LoadAges(t.Context(), f)
		require.NoError(t, err)
		require.Equal(t, ages(n), got)
	}
	data, err := os.ReadFile(filepath.Join(dir, "images-seen.json"))
	require.NoError(t, err)
	require.JSONEq(t, `{"version":1,"savedAt":"2026-01-02T12:00:00Z","images":{
		"`+hexA+`":{"firstDetected":"2026-01-02T11:58:00Z","lastUsed":"2026-01-02T11:59:00Z"},
		"`+hexB+`,kata":{"firstDetected":"2026-01-02T11:58:00Z"}}}`, string(data))
}

// found returns a store in a directory that contains this file.
func found(t *testing.T, text string) (store imagegc.Store, path string) {
	t.Helper()
	dir := t.TempDir()
	path = filepath.Join(dir, "images-seen.json")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return state.Files(dir), path
}

func TestAges_CrashDuringASaveLosesAtMostThatSave(t *testing.T) {
	f, path := found(t, "")
	require.NoError(t, imagegc.SaveAges(t.Context(), f, ages(1)))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	for cut := range len(data) {
		require.NoError(t, os.WriteFile(path+".new", data[:cut], 0o600))
		got, err := imagegc.LoadAges(t.Context(), f)
		require.NoError(t, err)
		require.Equal(t, ages(1), got)
	}
	require.NoError(t, imagegc.SaveAges(t.Context(), f, ages(2)), "the next save must succeed")
	got, err := imagegc.LoadAges(t.Context(), f)
	require.NoError(t, err)
	require.Equal(t, ages(2), got)
}

func TestAges_ReadAndWriteErrors(t *testing.T) {
	f, _ := found(t, `{"version":2}`)
	_, err := imagegc.LoadAges(t.Context(), f)
	require.ErrorContains(t, err, "unsupported version 2 of the file, want 1")
	f, path := found(t, `{`)
	_, err = imagegc.LoadAges(t.Context(), f)
	require.ErrorContains(t, err, "unexpected end of JSON input")
	require.ErrorContains(t, imagegc.SaveAges(t.Context(), state.Files(path), imagegc.Ages{}), "save ages of images: ")

	year := imagegc.Ages{Images: map[string]imagegc.Age{"x": {FirstDetected: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}}}
	require.Error(t, imagegc.SaveAges(t.Context(), f, year), "JSON does not support this year")
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(`{"version":1,"images":{"a":{"firstDetected":"2026-01-02T11:58:00Z"}}}`))
	f.Add([]byte(`{"version":1,"images":{"a":null}}`))
	f.Add([]byte(`{"version":1,"images":{"a":{"lastUsed":"2026-01-02T11:58:00+24:00"}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		store, again := state.Memory(), state.Memory()
		require.NoError(t, store.Put(t.Context(), "images-seen.json", data))
		got, err := imagegc.LoadAges(t.Context(), store)
		if err != nil || len(got.Images) == 0 {
			return
		}
		if imagegc.SaveAges(t.Context(), again, got) != nil {
			return // such as a time zone of 24 hours, which JSON accepts but time.Time does not marshal
		}
		reread, err := imagegc.LoadAges(t.Context(), again)
		require.NoError(t, err)
		require.Len(t, reread.Images, len(got.Images))
		for key, age := range got.Images {
			require.True(t, age.FirstDetected.Equal(reread.Images[key].FirstDetected))
			require.True(t, age.LastUsed.Equal(reread.Images[key].LastUsed))
		}
	})
}

// memory is a store that counts calls, and whose content tests can read.
type memory struct {
	ages             imagegc.Ages
	loads, saves     int
	loadErr, saveErr error
}

func (m *memory) Get(ctx context.Context, key string) ([]byte, error) {
	m.loads++
	if m.loadErr != nil {
		return nil, m.loadErr
	}
	store := state.Memory()
	if err := imagegc.SaveAges(ctx, store, m.ages); err != nil {
		return nil, err
	}
	return store.Get(ctx, key)
}

func (m *memory) Put(ctx context.Context, key string, value []byte) (err error) {
	m.saves++
	if m.saveErr != nil {
		return m.saveErr
	}
	store := state.Memory()
	if err := store.Put(ctx, key, value); err != nil {
		return err
	}
	m.ages, err = imagegc.LoadAges(ctx, store)
	return err
}

func TestAges_SurviveARestart(t *testing.T) { // kubernetes#119711
	store := &memory{}
	policy := func(c *imagegc.Config) { c.State, c.Policy.MaxAge = store, 48*time.Hour }
	r := newRig(t, []string{"a:1 1GiB", "b:1 1GiB", "c:1 1GiB"}, policy)
	r.use("b:1")
	r.clock.Step(24 * time.Hour)
	r.use("a:1")
	r.clock.Step(24*time.Hour + 1)
	require.NoError(t, r.Detect(t.Context()))

	r.Manager = r.manager(policy) // the process restarts, and the ages are kept
	require.NoError(t, r.collect())
	require.Equal(t, []string{"b:1 age", "c:1 age"}, func() []string {
		got := removed(r.last)
		if len(got) == 2 && got[0] > got[1] {
			got[0], got[1] = got[1], got[0]
		}
		return got
	}())
	require.Equal(t, "a:1", r.there())
	require.Len(t, store.ages.Images, 1)

	r.Manager = r.manager(func(c *imagegc.Config) { c.Policy.MaxAge = 48 * time.Hour })
	r.clock.Step(24 * time.Hour)
	require.NoError(t, r.collect())
	require.Equal(t, "a:1", r.there(), "without a store all ages are lost")
}

func TestAges_AreSavedOnChangesAndOncePerPeriod(t *testing.T) {
	store := &memory{}
	r := newRig(t, []string{"a:1 1GiB"}, func(c *imagegc.Config) { c.State = store })
	saves := func() int {
		require.NoError(t, r.Detect(t.Context()))
		return store.saves
	}
	require.Equal(t, 1, saves())
	require.Equal(t, 1, saves(), "without a change, nothing must be saved")
	_, sandbox := r.create("a:1")
	require.Equal(t, 2, saves(), "the start of use must be saved")
	r.clock.Step(time.Minute)
	require.Equal(t, 2, saves())
	require.NoError(t, r.node.RemovePodSandbox(t.Context(), sandbox))
	require.Equal(t, 3, saves(), "the end of use must be saved")
	r.clock.Step(5 * time.Minute)
	require.Equal(t, 4, saves())
	require.NoError(t, r.node.RemoveImage(t.Context(), &runtimeapi.ImageSpec{Image: "a:1"}))
	require.Equal(t, 5, saves(), "gone")
	require.Empty(t, store.ages.Images)
	require.Equal(t, 1, store.loads)
}

func TestAges_FailingStoreDoesNotStopThePass(t *testing.T) {
	store := &memory{loadErr: errors.New("unreadable"), saveErr: errors.New("full")}
	var said []string
	r := newRig(t, []string{"a:1 1GiB"}, func(c *imagegc.Config) {
		c.State = store
		c.Observer.StoreFailed = func(err error) { said = append(said, err.Error()) }
	})
	r.old()
	require.Empty(t, r.deleteUnused())
	require.Equal(t, []string{"read ages of images: unreadable", "save ages of images: full", "save ages of images: full"}, said)
	store.saveErr = nil
	require.NoError(t, r.Detect(t.Context()))
	require.Equal(t, 3, store.saves, "a failed save must be repeated")
}

func TestAges_FromTheFutureCountAsNew(t *testing.T) {
	store := &memory{}
	r := newRig(t, []string{"a:1 1GiB"})
	future := r.clock.Now().Add(1000 * time.Hour)
	store.ages = imagegc.Ages{SavedAt: r.clock.Now(), Images: map[string]imagegc.Age{
		r.id("a:1"): {FirstDetected: future, LastUsed: future}, "gone": {FirstDetected: future},
	}}
	r.Manager = r.manager(func(c *imagegc.Config) { c.State = store })
	plan, err := r.Plan(t.Context())
	require.NoError(t, err)
	require.Equal(t, r.clock.Now(), plan.Decisions[0].Image.FirstDetected)
	require.Equal(t, r.clock.Now(), plan.Decisions[0].Image.LastUsed)
}

func TestAges_AreSavedAgainAfterAFailedSave(t *testing.T) {
	r := newRig(t, []string{"a:1 1GiB"})
	far := `{"version":1,"savedAt":"2026-01-02T11:58:00+24:00","images":{"` + r.id("a:1") + `":{"firstDetected":"2026-01-02T11:58:00+24:00"}}}`
	f, _ := found(t, far)
	var failed error
	r.Manager = r.manager(func(c *imagegc.Config) { c.State, c.Observer.StoreFailed = f, func(err error) { failed = err } })
	require.NoError(t, r.Detect(t.Context()))
	require.NoError(t, failed)
}

// A clock whose wall time can be set without changing its monotonic time.
type wallClock struct {
	clock.RealClock
	offset time.Duration
}

func (c *wallClock) Now() time.Time {
	now := time.Now()
	// The seconds of a time with a monotonic reading are those bits of its first word.
	*(*uint64)(unsafe.Pointer(&now)) += uint64(c.offset/time.Second) << 30
	return now
}

// A node without a battery-backed clock starts in the past and sets its clock later.
func TestAges_SettingTheClockMakesNoImageOlder(t *testing.T) {
	const years = 20 * 365 * 24 * time.Hour
	store, wall := &memory{}, &wallClock{offset: -years}
	r := newRig(t, []string{"a:1 1GiB"})
	r.Manager = r.manager(func(c *imagegc.Config) { c.State, c.Clock, c.Period = store, wall, 1 })
	began := time.Now()
	require.NoError(t, r.Detect(t.Context()))
	require.WithinRange(t, store.ages.Images[r.id("a:1")].FirstDetected, began.Add(-years-time.Second), time.Now().Add(-years))
	wall.offset = 0
	require.NoError(t, r.Detect(t.Context()))
	require.WithinRange(t, store.ages.Images[r.id("a:1")].FirstDetected, began.Add(-time.Second), time.Now())
	require.Zero(t, store.ages.Images[r.id("a:1")].LastUsed)
}

// The clock may also be set while no agent runs, or later.
func TestAges_SettingTheClockDuringARestartMakesNoImageOlder(t *testing.T) {
	const years = 56 * 365 * 24 * time.Hour
	day := imagegc.Policy{MaxAge: 24 * time.Hour}
	for _, test := range []struct {
		name          string
		saved, loaded time.Duration // error of the clock
	}{
		{"set before the start", -years, 0},
		{"set after the start", -years, -years},
		{"set back before the start", years, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			store, wall := &memory{}, &wallClock{offset: test.saved}
			r := newRig(t, []string{"a:1 1GiB"})
			option := func(c *imagegc.Config) { c.State, c.Clock, c.Policy = store, wall, day }
			r.Manager = r.manager(option)
			require.NoError(t, r.collect())
			wall.offset = test.loaded
			r.Manager = r.manager(option)
			require.NoError(t, r.collect())
			wall.offset = 0
			require.NoError(t, r.collect())
			require.Equal(t, "a:1", r.there())
		})
	}
}

func TestAges_WithoutASaveTimeAllImagesAreNew(t *testing.T) {
	store := &memory{}
	r := newRig(t, []string{"a:1 1GiB"})
	store.ages = imagegc.Ages{Images: map[string]imagegc.Age{r.id("a:1"): {FirstDetected: time.Unix(60, 0)}}}
	r.Manager = r.manager(func(c *imagegc.Config) { c.State, c.Policy.MaxAge = store, time.Hour })
	require.NoError(t, r.collect())
	require.Equal(t, "a:1", r.there())
}

func TestAges_SettingTheClockChangesNoOrder(t *testing.T) {
	wall := &wallClock{offset: 48 * time.Hour}
	images := []imagegc.Image{{ID: "first", FirstDetected: wall.Now()}}
	wall.offset = 0
	images = append(images, imagegc.Image{ID: "second", FirstDetected: wall.Now().Add(time.Minute)})
	v := imagegc.PlanDeletions(wall.Now().Add(time.Hour), images, imagegc.Policy{}, imagegc.Goal{All: true})
	require.Equal(t, []string{"first", "second"}, []string{v[0].Image.ID, v[1].Image.ID})
	require.True(t, v[0].Delete, "the image was detected an hour ago, independent of the wall clock")
}
