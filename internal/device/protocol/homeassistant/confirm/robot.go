package confirm

// robots has services of vacuum cleaners and lawn mowers. The way back takes minutes: one
// that returns does what it was told.
var robots = table{
	"vacuum.start":          {becomes("cleaning")},
	"vacuum.pause":          {becomes("paused", "idle")},
	"vacuum.stop":           {leaves("cleaning", "returning")},
	"vacuum.return_to_base": {becomes("returning", "docked")},
	"vacuum.clean_spot":     {becomes("cleaning")},
	"vacuum.set_fan_speed":  {shows("fan_speed", "fan_speed", same)},
	"vacuum.turn_on":        {becomes("on", "cleaning")},
	"vacuum.turn_off":       {leaves("on", "cleaning")},

	"lawn_mower.start_mowing": {becomes("mowing")},
	"lawn_mower.pause":        {becomes("paused")},
	"lawn_mower.dock":         {becomes("returning", "docked")},
}
