package confirm

import "github.com/ferrulehq/ferrule/internal/device/protocol/homeassistant/home"

// content are the attributes that are others when something else is played.
var content = []string{"media_content_id", "media_title", "media_track", "media_episode", "app_name"}

// media has services of media players.
var media = table{
	"media_player.turn_on":              {leaves("off", "standby")},
	"media_player.turn_off":             {becomes("off", "standby")},
	"media_player.toggle":               {playerToggle},
	"media_player.media_play":           {becomes("playing", "buffering")},
	"media_player.media_pause":          {becomes("paused")},
	"media_player.media_stop":           {leaves("playing", "paused", "buffering")},
	"media_player.media_play_pause":     {flips("playing", "paused")},
	"media_player.media_next_track":     {changes(content...)},
	"media_player.media_previous_track": {changes(content...)},
	"media_player.media_seek":           {shows("seek_position", "media_position", near(3))},
	"media_player.volume_set":           {shows("volume_level", "volume_level", near(0.011))},
	"media_player.volume_mute":          {shows("is_volume_muted", "is_volume_muted", same)},
	"media_player.volume_up":            {steps("volume_level", false)},
	"media_player.volume_down":          {steps("volume_level", true)},
	"media_player.select_source":        {shows("source", "source", same)},
	"media_player.select_sound_mode":    {shows("sound_mode", "sound_mode", same)},
	"media_player.shuffle_set":          {shows("shuffle", "shuffle", same)},
	"media_player.repeat_set":           {shows("repeat", "repeat", same)},
	"media_player.join":                 {shows("group_members", "group_members", includes)},
	"media_player.play_media":           {plays},
}

func playerToggle(s *subject) {
	if s.before.Value == "off" || s.before.Value == "standby" {
		leaves("off", "standby")(s)
	} else {
		becomes("off", "standby")(s)
	}
}

// plays wants something to be played that was not played before. Players rename what they
// are given, so its ID proves nothing if it is another one. An announcement or an item for
// the queue shows nowhere.
func plays(s *subject) {
	if s.args["announce"] == true || s.args["enqueue"] != nil && s.args["enqueue"] != "play" && s.args["enqueue"] != "replace" {
		return
	}
	only("media", "media_content_id", "media_content_type", "enqueue", "announce", "extra")(s)
	becomes("playing", "buffering")(s)
	playing := s.before.Value == "playing"
	s.want(func(now home.State) bool { return !playing || changed(s.before, now, content) }, "another title")
}
