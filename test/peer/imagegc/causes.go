package imagegc

import (
	"slices"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// causes returns all causes of differences. If several of them explain a difference, the
// first one counts.
func causes() []cause {
	return slices.Concat(causesInReports(), causesInImages(), causesInPasses())
}

// causesInReports are about reports and events, not about deletions.
func causesInReports() []cause {
	return []cause{
		{
			"calls of the post-GC hook", hooksAll, judge.KubeletDefect,
			[]part{reports},
			"The kubelet calls its hook only after passes for space without a failure, with only those images that the pass considered and kept. " +
				"AfterGC is called after each pass that tried to delete an image, with all images that the runtime lists then.",
		},
		{
			"rate-limited image GC events", quiets, judge.Deliberate,
			[]part{reports},
			"The kubelet repeats its events in every pass; ours repeats them after an hour, or after a pass of Run without an error.",
		},
	}
}

// causesInImages are about one image.
func causesInImages() []cause {
	both := []part{deletions, reports}
	return []cause{
		{
			"image ages across restarts", agesSurvive, judge.Deliberate, both,
			"After a restart all images are new to the kubelet, and their age for MaxAge starts again at zero; with a Store ours keeps the ages of images (kubernetes#119711).",
		},
		{
			"age of images never used", ageFromFirst, judge.KubeletDefect, both,
			"The kubelet treats an image that was never used as infinitely old, and deletes the image when the kubelet itself has run for MaxAge; here MaxAge counts from the time when the image was first listed.",
		},
		{
			"MinAge in the MaxAge pass", minAgeAlways, judge.KubeletDefect, both,
			"Here MinAge applies in every pass; the kubelet's pass for MaxAge ignores it.",
		},
		{
			"images in use by name", namesCount, judge.Deliberate, both,
			"The kubelet compares only ids. Here an image is also in use if a container or an image volume " +
				"names it by a tag, a digest or an id without algorithm. If the tag has moved, the image to which " +
				"it has moved is also in use: a restarted container will need that image.",
		},
		{
			"image volumes with runtime handlers", anyVolume, judge.KubeletDefect, both,
			"With RuntimeClassInImageCriAPI the kubelet never finds an image with a runtime handler to be in use as a volume; here an image volume without a runtime handler counts for all handlers.",
		},
		{
			"unpinned pause image", keepsPause, judge.Deliberate, both,
			"The kubelet deletes a pause image that the runtime does not pin; ours never deletes an image whose repository is called pause, mirrored-pause or pause with an " +
				"architecture, because sandboxes may need it.",
		},
		{
			"images with an empty ID", needsID, judge.KubeletDefect, both,
			"The kubelet asks the runtime to delete an image with an empty id; ours keeps such an image.",
		},
		{
			"InvalidImageID event without feature gate", tellsNoID, judge.Deliberate,
			[]part{invalidID},
			"The kubelet records the event InvalidImageID about an image with an empty id only with the feature gate RuntimeClassInImageCriAPI; ours also records it without the gate.",
		},
	}
}

// causesInPasses are about the course of a pass: its calls, its failures and its end.
func causesInPasses() []cause {
	both := []part{deletions, reports}
	return []cause{
		{
			"containers listed again during a pass", looksAgain, judge.KubeletDefect, both,
			"The kubelet lists containers once in a pass, and deletes an image that has come into use since; ours lists the containers again when the list is five seconds old.",
		},
		{
			"one inspection per container", inspectsOnce, judge.Deliberate, both,
			"The kubelet inspects each container in each pass, and the first failure ends the pass; ours " +
				"inspects a container once, and a failure does not end the pass if the container was removed or " +
				"has exited, or after ten minutes of failures.",
		},
		{
			"failed listing of sandboxes", noSandboxes, judge.Deliberate, both,
			"Ours does not list sandboxes, so that a failure to list them does not matter; in the kubelet such a failure ends the pass.",
		},
		{
			"back-off after failed deletions", backsOff, judge.Deliberate, both,
			"The kubelet retries a failed deletion in each pass; ours retries it after 1 min, 2 min, and so on up to 1 h.",
		},
		{
			"failed deletion for MaxAge", ageGoesOn, judge.KubeletDefect, both,
			"After a failed deletion for MaxAge the kubelet's pass ends, so that a single image that cannot be deleted prevents the kubelet from freeing space; ours continues.",
		},
		{
			"images not found on deletion", goneIsFine, judge.KubeletDefect, both,
			"If the runtime does not find an image that is to be deleted, ours counts it as deleted; the kubelet counts a failure.",
		},
		{
			"high threshold reached by rounding", nothingIsEnough, judge.Deliberate, both,
			"If usage is at the high threshold only because of rounding, and enough space for the low threshold is available, ours deletes nothing; the kubelet deletes one image.",
		},
		{
			"filesystem measured after each deletion", measures, judge.Deliberate, both,
			"The kubelet adds up the sizes of deleted images to decide when to stop; ours measures the filesystem after each deletion, and reports each measurement whose capacity is 0.",
		},
		{
			"percentage overflow above 80 PiB", wideNumbers, judge.KubeletDefect, both,
			"The kubelet's percentages overflow on filesystems of more than 80 PiB; our percentages do not.",
		},
		{
			"failed deletion with enough space freed", enoughIsFine, judge.Deliberate,
			[]part{reports},
			"A failed deletion is an error of the kubelet's pass; here it is not an error if the pass has freed enough space by other deletions.",
		},
	}
}
