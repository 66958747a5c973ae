package describe

// serviceTexts are our texts for the services of Home Assistant's own domains. Its texts change
// with releases and languages, and the Kind of each device would change with them.
var serviceTexts = map[string]string{
	"alarm_control_panel.alarm_arm_away":          "Arms the alarm for the time that everybody is away.",
	"alarm_control_panel.alarm_arm_custom_bypass": "Arms the alarm without the sensors that are bypassed.",
	"alarm_control_panel.alarm_arm_home":          "Arms the alarm while people are at home.",
	"alarm_control_panel.alarm_arm_night":         "Arms the alarm for the night.",
	"alarm_control_panel.alarm_arm_vacation":      "Arms the alarm for a vacation.",
	"alarm_control_panel.alarm_disarm":            "Disarms the alarm panel.",
	"alarm_control_panel.alarm_trigger":           "Sets off the alarm.",

	"assist_satellite.announce":           "Says a message on the voice satellite.",
	"assist_satellite.start_conversation": "Says a message on the voice satellite and listens for the answer.",

	"automation.toggle":   "Enables the automation if it is disabled, and disables it if it is enabled.",
	"automation.trigger":  "Runs the actions of the automation now.",
	"automation.turn_off": "Disables the automation.",
	"automation.turn_on":  "Enables the automation.",

	"button.press":       "Presses the button.",
	"input_button.press": "Presses the button.",

	"calendar.create_event": "Adds an event to the calendar. Give start_date and end_date for whole days, or start_date_time and end_date_time.",
	"calendar.get_events":   "Returns the events of the calendar in a time range. Give end_date_time or duration.",

	"camera.disable_motion_detection": "Disables the motion detection of the camera.",
	"camera.enable_motion_detection":  "Enables the motion detection of the camera.",
	"camera.turn_off":                 "Turns the camera off.",
	"camera.turn_on":                  "Turns the camera on.",

	"climate.set_aux_heat":              "Turns the auxiliary heater on or off.",
	"climate.set_fan_mode":              "Sets the fan mode.",
	"climate.set_humidity":              "Sets the humidity to keep.",
	"climate.set_hvac_mode":             "Sets the mode: heating, cooling and others, or off.",
	"climate.set_preset_mode":           "Selects a preset.",
	"climate.set_swing_horizontal_mode": "Sets the horizontal swing mode.",
	"climate.set_swing_mode":            "Sets the swing mode.",
	"climate.set_temperature":           "Sets the target temperature, or the range between target_temp_low and target_temp_high, and the mode if it is given.",
	"climate.toggle":                    "Turns the device on if it is off, and off if it is on.",
	"climate.turn_off":                  "Turns the device off.",
	"climate.turn_on":                   "Turns the device on.",

	"counter.decrement": "Decrements the counter by its step.",
	"counter.increment": "Increments the counter by its step.",
	"counter.reset":     "Resets the counter to its initial value.",
	"counter.set_value": "Sets the counter.",

	"cover.close_cover":             "Closes the cover.",
	"cover.close_cover_tilt":        "Closes the slats of the cover.",
	"cover.open_cover":              "Opens the cover.",
	"cover.open_cover_tilt":         "Opens the slats of the cover.",
	"cover.set_cover_position":      "Moves the cover to a position. 0 is closed, 100 is open.",
	"cover.set_cover_tilt_position": "Tilts the slats of the cover. 0 is closed, 100 is open.",
	"cover.stop_cover":              "Stops the cover.",
	"cover.stop_cover_tilt":         "Stops the slats of the cover.",
	"cover.toggle":                  "Opens the cover if it is closed, and closes it if it is open.",
	"cover.toggle_cover_tilt":       "Opens the slats of the cover if they are closed, and closes them if they are open.",

	"date.set_value":     "Changes the date.",
	"datetime.set_value": "Changes the date and time.",

	"fan.decrease_speed":  "Slows the fan down by a step.",
	"fan.increase_speed":  "Speeds the fan up by a step.",
	"fan.oscillate":       "Turns oscillation on or off.",
	"fan.set_direction":   "Sets the direction of rotation.",
	"fan.set_percentage":  "Sets the speed of the fan. 0 turns it off.",
	"fan.set_preset_mode": "Selects a preset of the fan.",
	"fan.toggle":          "Turns the fan on if it is off, and off if it is on.",
	"fan.turn_off":        "Turns the fan off.",
	"fan.turn_on":         "Turns the fan on, at a speed or with a preset if one is given.",

	"humidifier.set_humidity": "Sets the humidity to keep.",
	"humidifier.set_mode":     "Sets the mode.",
	"humidifier.toggle":       "Turns the device on if it is off, and off if it is on.",
	"humidifier.turn_off":     "Turns the device off.",
	"humidifier.turn_on":      "Turns the device on.",

	"image_processing.scan": "Analyzes the current image.",

	"input_boolean.toggle":         "Turns the helper on if it is off, and off if it is on.",
	"input_boolean.turn_off":       "Turns the helper off.",
	"input_boolean.turn_on":        "Turns the helper on.",
	"input_datetime.set_datetime":  "Sets the date, the time or both, as the helper has them.",
	"input_number.decrement":       "Decrements the number by its step.",
	"input_number.increment":       "Increments the number by its step.",
	"input_number.set_value":       "Sets the number.",
	"input_select.select_first":    "Chooses the first option.",
	"input_select.select_last":     "Chooses the last option.",
	"input_select.select_next":     "Chooses the option after the current one.",
	"input_select.select_option":   "Chooses an option.",
	"input_select.select_previous": "Chooses the option before the current one.",
	"input_select.set_options":     "Replaces the options.",
	"input_text.set_value":         "Sets the text.",

	"lawn_mower.dock":         "Sends the mower to its dock.",
	"lawn_mower.pause":        "Pauses the mower.",
	"lawn_mower.start_mowing": "Starts or resumes mowing.",

	"light.toggle":   "Turns the light on if it is off, and off if it is on.",
	"light.turn_off": "Turns the light off.",
	"light.turn_on":  "Turns the light on, or changes it if it is on. Give one color at most.",

	"lock.lock":   "Locks the lock.",
	"lock.open":   "Opens the door, beyond unlocking it.",
	"lock.unlock": "Unlocks the lock.",

	"media_player.browse_media":         "Lists the media that the player can play: the contents of a folder, or the folders.",
	"media_player.clear_playlist":       "Empties the playlist.",
	"media_player.media_next_track":     "Skips to the next track.",
	"media_player.media_pause":          "Pauses playback.",
	"media_player.media_play":           "Starts or resumes playback.",
	"media_player.media_play_pause":     "Pauses playback if it is running, and resumes it if it is paused.",
	"media_player.media_previous_track": "Goes back to the previous track.",
	"media_player.media_seek":           "Goes to a position of the current medium.",
	"media_player.media_stop":           "Stops playback.",
	"media_player.play_media":           "Plays a medium.",
	"media_player.repeat_set":           "Sets whether the playlist or the track is repeated.",
	"media_player.search_media":         "Searches the media that the player can play.",
	"media_player.select_sound_mode":    "Selects a sound mode.",
	"media_player.select_source":        "Selects the input source.",
	"media_player.shuffle_set":          "Turns shuffling on or off.",
	"media_player.toggle":               "Turns the player on if it is off, and off if it is on.",
	"media_player.turn_off":             "Turns the player off.",
	"media_player.turn_on":              "Turns the player on.",
	"media_player.unjoin":               "Removes the player from its group.",
	"media_player.volume_down":          "Turns the volume down by a step.",
	"media_player.volume_mute":          "Mutes the player or unmutes it.",
	"media_player.volume_set":           "Sets the volume.",
	"media_player.volume_up":            "Turns the volume up by a step.",

	"notify.send_message": "Sends a message to people.",

	"number.set_value": "Sets the number.",

	"remote.delete_command": "Removes learned commands.",
	"remote.learn_command":  "Learns commands from another remote control.",
	"remote.send_command":   "Sends commands as the remote control does.",
	"remote.toggle":         "Turns the device on if it is off, and off if it is on.",
	"remote.turn_off":       "Turns the device off.",
	"remote.turn_on":        "Turns the device on, and starts an activity if one is given.",

	"scene.turn_on": "Activates the scene.",

	"schedule.get_schedule": "Returns the times of the schedule.",

	"script.toggle":   "Starts the script if it is not running, and stops it if it is.",
	"script.turn_off": "Stops the script.",
	"script.turn_on":  "Starts the script. It may still be running when the call returns.",

	"select.select_first":    "Chooses the first option.",
	"select.select_last":     "Chooses the last option.",
	"select.select_next":     "Chooses the option after the current one.",
	"select.select_option":   "Chooses an option.",
	"select.select_previous": "Chooses the option before the current one.",

	"siren.toggle":   "Turns the siren on if it is off, and off if it is on.",
	"siren.turn_off": "Silences the siren.",
	"siren.turn_on":  "Sounds the siren.",

	"switch.toggle":   "Turns the switch on if it is off, and off if it is on.",
	"switch.turn_off": "Turns the switch off.",
	"switch.turn_on":  "Turns the switch on.",

	"text.set_value": "Sets the text.",
	"time.set_value": "Changes the time.",

	"timer.cancel": "Cancels the timer.",
	"timer.change": "Adds time to the running timer, or takes it away.",
	"timer.finish": "Ends the timer as if its time were up.",
	"timer.pause":  "Pauses the timer.",
	"timer.start":  "Starts the timer, or starts it again.",

	"todo.add_item":               "Adds an item to the list.",
	"todo.get_items":              "Returns the items of the list.",
	"todo.remove_completed_items": "Removes all completed items from the list.",
	"todo.remove_item":            "Removes an item from the list.",
	"todo.update_item":            "Changes an item of the list.",

	"update.clear_skipped": "Offers again an update that was skipped.",
	"update.install":       "Installs an update.",
	"update.skip":          "Skips the available update.",

	"vacuum.clean_spot":     "Cleans the spot where the vacuum cleaner is.",
	"vacuum.locate":         "Makes the vacuum cleaner say where it is.",
	"vacuum.pause":          "Pauses cleaning.",
	"vacuum.return_to_base": "Sends the vacuum cleaner to its dock.",
	"vacuum.send_command":   "Sends a command of the manufacturer to the vacuum cleaner.",
	"vacuum.set_fan_speed":  "Sets the suction.",
	"vacuum.start":          "Starts or resumes cleaning.",
	"vacuum.stop":           "Stops cleaning.",

	"valve.close_valve":        "Closes the valve.",
	"valve.open_valve":         "Opens the valve.",
	"valve.set_valve_position": "Moves the valve to a position. 0 is closed, 100 is open.",
	"valve.stop_valve":         "Stops the valve.",
	"valve.toggle":             "Opens the valve if it is closed, and closes it if it is open.",

	"water_heater.set_away_mode":      "Turns the away mode on or off.",
	"water_heater.set_operation_mode": "Sets the mode.",
	"water_heater.set_temperature":    "Sets the water temperature to keep.",
	"water_heater.turn_off":           "Turns the water heater off.",
	"water_heater.turn_on":            "Turns the water heater on.",

	"weather.get_forecasts": "Returns the forecast.",
}

// fieldTexts are our texts for fields: of one domain, or of all. A field of a known service that
// is not here explains itself.
var fieldTexts = map[string]string{
	"code":             "The code, if one is needed.",
	"transition":       "How long the change takes.",
	"duration":         "How long.",
	"date":             "A date such as 2026-12-31.",
	"time":             "A time such as 22:15:00.",
	"datetime":         "A date and time such as 2026-12-31 22:15:00.",
	"end_date":         "The day after the last one, such as 2026-12-31.",
	"end_date_time":    "The end, such as 2026-12-31 22:15:00.",
	"start_date":       "The first day, such as 2026-12-31.",
	"start_date_time":  "The beginning, such as 2026-12-31 22:15:00.",
	"tilt_position":    "0 is closed, 100 is open.",
	"position":         "0 is closed, 100 is open.",
	"target_temp_high": "The upper end of the range.",
	"target_temp_low":  "The lower end of the range.",

	"calendar.duration": "The length of the time range.",
	"calendar.in":       "When the event begins, from now: days or weeks.",
	"calendar.summary":  "The title of the event.",

	"fan.percentage":      "The speed.",
	"fan.percentage_step": "The size of the step.",

	"light.brightness":        "The brightness from 0 to 255.",
	"light.brightness_pct":    "The brightness in percent.",
	"light.color_name":        "A CSS color name, such as red or linen.",
	"light.color_temp_kelvin": "The color temperature. Low is warm.",
	"light.effect":            "The name of an effect.",
	"light.hs_color":          "Hue from 0 to 360, and saturation from 0 to 100.",
	"light.rgb_color":         "Red, green and blue.",
	"light.rgbw_color":        "Red, green, blue and white from 0 to 255.",
	"light.rgbww_color":       "Red, green, blue, cold white and warm white from 0 to 255.",
	"light.white":             "Sets the light to white.",

	"media_player.announce":           "Pauses what is playing, and resumes it afterwards.",
	"media_player.enqueue":            "What to do with the queue: play it now, next, at the end, or replace all.",
	"media_player.media_content_id":   "The ID or the URL of the medium.",
	"media_player.media_content_type": "The type of the medium, such as music, tvshow, video or channel.",
	"media_player.seek_position":      "The position in seconds.",
	"media_player.volume_level":       "The volume from 0 to 1.",

	"siren.duration":     "How long the siren sounds, in seconds.",
	"siren.tone":         "The tone.",
	"siren.volume_level": "The volume from 0 to 1.",

	"update.backup":  "Makes a backup first.",
	"update.version": "The version to install, if it is not the latest.",

	"weather.type": "The forecast for each day, each hour, or twice a day.",
}
